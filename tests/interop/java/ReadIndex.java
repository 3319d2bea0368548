package org.apache.bookkeeper.bookie;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorageDataFormats.LedgerData;
import org.apache.bookkeeper.bookie.storage.ldb.EntryLocationIndex;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorage;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorageFactory;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorageFactory.DbConfigType;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorageRocksDB;
import org.apache.bookkeeper.bookie.storage.ldb.LedgerMetadataIndex;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.apache.bookkeeper.util.StringUtils;

/** What the index of a bookie holds, as BookKeeper's own classes read it. Give it a copy of the directory. */
final class ReadIndex {

    private static final KeyValueStorageFactory READ_ONLY =
            (base, name, kind, conf) -> new KeyValueStorageRocksDB(base, name, DbConfigType.Default, conf, true);

    private ReadIndex() {
    }

    /** Arguments: "current" directory, name of the database. Every row, as bytes. */
    static void rocksdbRows(String[] arguments, Driver.Rows rows) throws Exception {
        ServerConfiguration conf = new ServerConfiguration();
        KeyValueStorage database =
                READ_ONLY.newKeyValueStorage(arguments[0], arguments[1], DbConfigType.Default, conf);
        try (KeyValueStorage.CloseableIterator<Map.Entry<byte[], byte[]>> iterator = database.iterator()) {
            while (iterator.hasNext()) {
                Map.Entry<byte[], byte[]> row = iterator.next();
                rows.add(Map.of(
                        "key", ByteBufUtil.hexDump(row.getKey()), "value", ByteBufUtil.hexDump(row.getValue())));
            }
        } finally {
            database.close();
        }
    }

    /** Arguments: "current" directory, ledger ids. What the "ledger" command of the shell prints for each of them. */
    static void locations(String[] arguments, Driver.Rows rows) throws Exception {
        EntryLocationIndex index =
                new EntryLocationIndex(new ServerConfiguration(), READ_ONLY, arguments[0], NullStatsLogger.INSTANCE);
        try {
            for (int i = 1; i < arguments.length; i++) {
                long ledger = Long.parseLong(arguments[i]);
                long last;
                try {
                    last = index.getLastEntryInLedger(ledger);
                } catch (Bookie.NoEntryException none) {
                    continue;
                }
                for (long entry = 0; entry <= last; entry++) {
                    addLocation(rows, ledger, entry, index.getLocation(ledger, entry));
                }
            }
        } finally {
            index.close();
        }
    }

    private static void addLocation(Driver.Rows rows, long ledger, long entry, long location) throws IOException {
        if (location > 0) {
            rows.add(Map.of(
                    "ledger", ledger, "entry", entry,
                    "log_id", location >> 32, "offset", location & 0xffffffffL));
        }
    }

    /** Arguments: "current" directory. The ledgers as a starting DbLedgerStorage has them in memory. */
    static void ledgers(String[] arguments, Driver.Rows rows) throws Exception {
        LedgerMetadataIndex index =
                new LedgerMetadataIndex(new ServerConfiguration(), READ_ONLY, arguments[0], NullStatsLogger.INSTANCE);
        try {
            for (long ledger : index.getActiveLedgersInRange(0, Long.MAX_VALUE)) {
                LedgerData data = index.get(ledger);
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("ledger", ledger);
                row.put("fenced", data.getFenced());
                row.put("master_key", ByteBufUtil.hexDump(data.getMasterKey().toByteArray()));
                row.put("explicit_lac",
                        data.hasExplicitLac() ? ByteBufUtil.hexDump(data.getExplicitLac().toByteArray()) : null);
                row.put("limbo", data.hasLimbo() && data.getLimbo());
                rows.add(row);
            }
        } finally {
            index.close();
        }
    }

    /** Arguments: ledger directories (parents of "current"). Ledgers and locations of the .idx files in them. */
    static void fileLedgers(String[] arguments, Driver.Rows rows) throws Exception {
        ServerConfiguration conf = Driver.configuration(arguments[0], arguments);
        conf.setLedgerStorageClass(InterleavedLedgerStorage.class.getName());
        InterleavedLedgerStorage storage =
                (InterleavedLedgerStorage) BookieImpl.mountLedgerStorageOffline(conf, null);
        try {
            for (long ledger : storage.getActiveLedgersInRange(0, Long.MAX_VALUE)) {
                rows.add(fileLedger(storage, ledger));
            }
        } finally {
            storage.shutdown();
        }
    }

    private static Map<String, Object> fileLedger(InterleavedLedgerStorage storage, long ledger) throws Exception {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("ledger", ledger);
        try {
            LedgerCache.LedgerIndexMetadata metadata = storage.readLedgerIndexMetadata(ledger);
            row.put("master_key", metadata.masterKey == null ? null : ByteBufUtil.hexDump(metadata.masterKey));
            row.put("fenced", metadata.fenced);
            ByteBuf lac = storage.getExplicitLac(ledger);
            row.put("explicit_lac", lac == null ? null : ByteBufUtil.hexDump(lac));
            List<long[]> locations = new ArrayList<>();
            try (LedgerCache.PageEntriesIterable pages = storage.getIndexEntries(ledger)) {
                for (LedgerCache.PageEntries page : pages) {
                    try (LedgerEntryPage entries = page.getLEP()) {
                        entries.getEntries((entry, location) -> locations.add(
                                new long[] {entry, location >> 32, location & 0xffffffffL}));
                    }
                }
            }
            row.put("locations", locations);
        } catch (Throwable failure) {
            row.put("error", Driver.describe(failure));
        }
        return row;
    }

    /** Arguments: value of a row of "ledgers" in hex; parsed and serialized again. */
    static void ledgerData(String[] arguments, Driver.Rows rows) throws Exception {
        LedgerData data = LedgerData.parseFrom(ByteBufUtil.decodeHexDump(arguments[0]));
        rows.add(Map.of("bytes", ByteBufUtil.hexDump(data.toByteArray()), "fenced", data.getFenced()));
    }

    /** Arguments: value of a row of "metadata-cache" in hex; parsed and serialized again. */
    static void entryLogMetadata(String[] arguments, Driver.Rows rows) throws Exception {
        byte[] value = ByteBufUtil.decodeHexDump(arguments[0]);
        EntryLogMetadata metadata =
                EntryLogMetadata.deserialize(new DataInputStream(new ByteArrayInputStream(value)));
        Map<Long, Long> ledgers = new TreeMap<>();
        metadata.getLedgersMap().forEach(ledgers::put);
        ByteArrayOutputStream again = new ByteArrayOutputStream();
        metadata.serialize(new DataOutputStream(again));
        rows.add(Map.of(
                "log_id", metadata.getEntryLogId(), "total_size", metadata.getTotalSize(),
                "remaining_size", metadata.getRemainingSize(), "ledgers", ledgers,
                "bytes", ByteBufUtil.hexDump(again.toByteArray())));
    }

    /** Arguments: ledger ids. The paths of the index file and of the znode of each. */
    static void paths(String[] arguments, Driver.Rows rows) throws Exception {
        for (String argument : arguments) {
            long ledger = Long.parseLong(argument);
            rows.add(Map.of(
                    "index", IndexPersistenceMgr.getLedgerName(ledger),
                    "znode", StringUtils.getHybridHierarchicalLedgerPath(ledger)));
        }
    }
}
