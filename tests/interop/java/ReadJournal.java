package org.apache.bookkeeper.bookie;

import java.io.File;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.util.DiskChecker;

/** What Journal.scanJournal delivers, and the mark that a Journal reads at its start. */
final class ReadJournal {

    private ReadJournal() {
    }

    /** Arguments: journal directory, a ledger directory, journal id (decimal), start offset, skip invalid records. */
    static void read(String[] arguments, Driver.Rows rows) throws Exception {
        Journal journal = open(arguments[0], arguments[1]);
        Map<String, Object> end = new LinkedHashMap<>();
        end.put("kind", "end");
        try {
            long position = journal.scanJournal(
                    Long.parseLong(arguments[2]),
                    Long.parseLong(arguments[3]),
                    (version, offset, record) -> {
                        Map<String, Object> row = new LinkedHashMap<>();
                        row.put("kind", "record");
                        row.put("version", version);
                        row.put("offset", offset);
                        row.put("length", record.remaining());
                        row.put("ledger", record.remaining() >= 8 ? (Long) record.getLong(0) : null);
                        row.put("entry", record.remaining() >= 16 ? (Long) record.getLong(8) : null);
                        rows.add(row);
                    },
                    Boolean.parseBoolean(arguments[4]));
            end.put("position", position);
        } catch (Throwable failure) {
            end.put("error", Driver.describe(failure));
        }
        rows.add(end);
    }

    /** Arguments: journal directory, ledger directories. */
    static void lastMark(String[] arguments, Driver.Rows rows) throws Exception {
        String[] ledgerDirs = Arrays.copyOfRange(arguments, 1, arguments.length);
        Journal.LastLogMark mark = open(arguments[0], ledgerDirs).getLastLogMark();
        rows.add(Map.of(
                "journal_id", mark.getCurMark().getLogFileId(), "offset", mark.getCurMark().getLogFileOffset()));
    }

    private static Journal open(String journalDir, String... ledgerDirs) throws Exception {
        ServerConfiguration conf = Driver.configuration(journalDir, ledgerDirs);
        File current = Driver.current(journalDir);
        DiskChecker checker = new DiskChecker(conf.getDiskUsageThreshold(), conf.getDiskUsageWarnThreshold());
        LedgerDirsManager dirs = new LedgerDirsManager(conf, conf.getLedgerDirs(), checker);
        return new Journal(0, current, conf, dirs);
    }
}
