package org.apache.bookkeeper.bookie;

import io.netty.buffer.ByteBufUtil;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import org.apache.bookkeeper.bookie.storage.ldb.EntryLocationIndex;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorage;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorageFactory;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorageFactory.DbConfigType;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorageRocksDB;
import org.apache.bookkeeper.bookie.storage.ldb.LedgerMetadataIndex;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.stats.NullStatsLogger;

/**
 * Opens index databases for reading and writing, with the options that a bookie has for each of them.
 *
 * A program of its own, because it must compile against 4.18.0 as well, whose protobuf classes are others. Each
 * argument is a command; its words are separated by blanks. Rows go to standard output, "key value" in hex.
 */
public final class IndexStore {

    private static final KeyValueStorageFactory READ_WRITE =
            (base, name, kind, conf) -> new KeyValueStorageRocksDB(base, name, kind, conf);

    private IndexStore() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream rows = System.out;
        System.setOut(System.err);  // whatever a library prints must not get between the rows
        for (String argument : arguments) {
            String[] words = argument.split(" ");
            String[] rest = Arrays.copyOfRange(words, 2, words.length);
            switch (words[0]) {
                case "rows" -> rows(words[1], rest, rows);
                case "batch" -> batch(words[1], rest);
                case "locations" -> locations(words[1], rest, rows);
                case "ledgers" -> ledgers(words[1], rest, rows);
                default -> throw new IllegalArgumentException(argument);
            }
        }
        rows.flush();
        System.exit(0);  // some of BookKeeper's threads are not daemons
    }

    /** rows CURRENT NAME KIND: every row. */
    private static void rows(String current, String[] words, PrintStream rows) throws Exception {
        try (KeyValueStorage database = open(current, words);
                KeyValueStorage.CloseableIterator<Map.Entry<byte[], byte[]>> iterator = database.iterator()) {
            while (iterator.hasNext()) {
                Map.Entry<byte[], byte[]> row = iterator.next();
                rows.println(ByteBufUtil.hexDump(row.getKey()) + " " + ByteBufUtil.hexDump(row.getValue()));
            }
        }
    }

    /** batch CURRENT NAME KIND put:K:V | delete:K | delete-range:START:STOP | compact ...: one synced batch. */
    private static void batch(String current, String[] words) throws Exception {
        try (KeyValueStorage database = open(current, words); KeyValueStorage.Batch batch = database.newBatch()) {
            for (String word : Arrays.copyOfRange(words, 2, words.length)) {
                String[] parts = word.split(":", -1);
                switch (parts[0]) {
                    case "put" -> batch.put(bytes(parts[1]), bytes(parts[2]));
                    case "delete" -> batch.remove(bytes(parts[1]));
                    case "delete-range" -> batch.deleteRange(bytes(parts[1]), bytes(parts[2]));
                    case "compact" -> {
                        batch.flush();
                        batch.clear();
                        database.sync();
                        database.compact();
                    }
                    default -> throw new IllegalArgumentException(word);
                }
            }
            batch.flush();
            database.sync();
        }
    }

    /**
     * locations CURRENT LEDGER COUNT: adds the locations (7, 1028 + entry) of a ledger as a bookie does; prints the
     * number that can be read back, and the last entry of the ledger.
     */
    private static void locations(String current, String[] words, PrintStream rows) throws Exception {
        long ledger = Long.parseLong(words[0]);
        long entries = Long.parseLong(words[1]);
        EntryLocationIndex index =
                new EntryLocationIndex(new ServerConfiguration(), READ_WRITE, current, NullStatsLogger.INSTANCE);
        try {
            long found = 0;
            for (long entry = 0; entry < entries; entry++) {
                index.addLocation(ledger, entry, 7L << 32 | 1028 + entry);
                found += index.getLocation(ledger, entry) == (7L << 32 | 1028 + entry) ? 1 : 0;
            }
            rows.println(found + " " + index.getLastEntryInLedger(ledger));
        } finally {
            index.close();
        }
    }

    /** ledgers CURRENT FENCE DELETE: fences a ledger, deletes another; the ledgers there are after a restart. */
    private static void ledgers(String current, String[] words, PrintStream rows) throws Exception {
        LedgerMetadataIndex index = ledgers(current);
        index.setFenced(Long.parseLong(words[0]));
        index.delete(Long.parseLong(words[1]));
        index.flush();
        index.removeDeletedLedgers();
        index.close();
        LedgerMetadataIndex again = ledgers(current);
        for (long ledger : again.getActiveLedgersInRange(0, Long.MAX_VALUE)) {
            rows.println(ledger + " " + !again.setFenced(ledger));  // false: it was fenced already
        }
        again.close();
    }

    private static LedgerMetadataIndex ledgers(String current) throws Exception {
        return new LedgerMetadataIndex(new ServerConfiguration(), READ_WRITE, current, NullStatsLogger.INSTANCE);
    }

    private static KeyValueStorage open(String current, String[] words) throws Exception {
        DbConfigType kind = DbConfigType.valueOf(words[1]);
        return READ_WRITE.newKeyValueStorage(current, words[0], kind, new ServerConfiguration());
    }

    private static byte[] bytes(String hex) {
        return ByteBufUtil.decodeHexDump(hex);
    }
}
