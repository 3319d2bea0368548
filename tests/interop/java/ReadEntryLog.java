package org.apache.bookkeeper.bookie;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.bookkeeper.bookie.storage.EntryLogScanner;

/** What DefaultEntryLogger makes of one entry log. */
final class ReadEntryLog {

    private interface Metadata {
        EntryLogMetadata read() throws Exception;
    }

    private ReadEntryLog() {
    }

    /** Arguments: ledger directory, log id (decimal). */
    static void read(String[] arguments, Driver.Rows rows) throws Exception {
        long logId = Long.parseLong(arguments[1]);
        DefaultEntryLogger logger = open(arguments[0]);
        try {
            rows.add(metadata("metadata", () -> logger.getEntryLogMetadata(logId)));
            rows.add(metadata("map", () -> logger.extractEntryLogMetadataFromIndex(logId)));
            scan(logger, logId, rows);
        } finally {
            logger.close();
        }
    }

    /** Arguments: ledger directory, ledger id, entry id, location. */
    static void readEntry(String[] arguments, Driver.Rows rows) throws Exception {
        DefaultEntryLogger logger = open(arguments[0]);
        try {
            ByteBuf body = logger.readEntry(
                    Long.parseLong(arguments[1]), Long.parseLong(arguments[2]), Long.parseLong(arguments[3]));
            rows.add(Map.of("body", ByteBufUtil.hexDump(body)));
            body.release();
        } finally {
            logger.close();
        }
    }

    /** Arguments: ledger directory, log id, rounds. Every record is delivered and its ids are read. */
    static void timeScan(String[] arguments, Driver.Rows rows) throws Exception {
        long logId = Long.parseLong(arguments[1]);
        DefaultEntryLogger logger = open(arguments[0]);
        try {
            for (int round = Integer.parseInt(arguments[2]); round > 0; round--) {
                long[] totals = new long[3];
                long start = System.nanoTime();
                logger.scanEntryLog(logId, scanner((ledger, offset, entry) -> {
                    totals[0]++;
                    totals[1] += 4 + entry.readableBytes();
                    totals[2] ^= entry.getLong(entry.readerIndex() + 8);
                }));
                double seconds = (System.nanoTime() - start) / 1e9;
                rows.add(Map.of("entries", totals[0], "bytes", totals[1], "seconds", seconds));
            }
        } finally {
            logger.close();
        }
    }

    private static DefaultEntryLogger open(String ledgerDir) throws IOException {
        return new ReadOnlyDefaultEntryLogger(Driver.configuration(ledgerDir, ledgerDir));
    }

    private static Map<String, Object> metadata(String kind, Metadata source) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("kind", kind);
        try {
            EntryLogMetadata metadata = source.read();
            Map<Long, Long> ledgers = new TreeMap<>();
            metadata.getLedgersMap().forEach(ledgers::put);
            row.put("total_size", metadata.getTotalSize());
            row.put("ledgers", ledgers);
        } catch (Throwable failure) {
            row.put("error", Driver.describe(failure));
        }
        return row;
    }

    private static void scan(DefaultEntryLogger logger, long logId, Driver.Rows rows) throws IOException {
        Map<String, Object> end = new LinkedHashMap<>();
        end.put("kind", "end");
        try {
            logger.scanEntryLog(logId, scanner((ledger, offset, entry) -> {
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("kind", "record");
                row.put("ledger", ledger);
                row.put("offset", offset);
                row.put("size", entry.readableBytes());
                int body = entry.readerIndex();
                row.put("entry", entry.readableBytes() >= 16 ? (Long) entry.getLong(body + 8) : null);
                rows.add(row);
            }));
        } catch (Throwable failure) {
            end.put("error", Driver.describe(failure));
        }
        rows.add(end);
    }

    private interface Record {
        void process(long ledger, long offset, ByteBuf entry) throws IOException;
    }

    private static EntryLogScanner scanner(Record record) {
        return new EntryLogScanner() {
            @Override
            public boolean accept(long ledgerId) {
                return true;
            }

            @Override
            public void process(long ledgerId, long offset, ByteBuf entry) throws IOException {
                record.process(ledgerId, offset, entry);
            }
        };
    }
}
