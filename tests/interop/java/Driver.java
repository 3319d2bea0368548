// In BookKeeper's own package because some of what the tests ask for is package-private.
package org.apache.bookkeeper.bookie;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import org.apache.bookkeeper.conf.ServerConfiguration;

/**
 * Answers requests on standard input, one JSON array ["command", argument, ...] per line.
 *
 * Each answer is any number of JSON objects, one per line, and then {"done": true} or
 * {"failed": "class: message"}. With arguments on the command line that one request is answered and the
 * JVM ends.
 */
public final class Driver {

    /** Writes one row of an answer. */
    interface Rows {
        void add(Map<String, ?> row) throws IOException;
    }

    interface Command {
        void run(String[] arguments, Rows rows) throws Exception;
    }

    private static final Map<String, Command> COMMANDS = Map.ofEntries(
            Map.entry("entry-log", ReadEntryLog::read),
            Map.entry("entry", ReadEntryLog::readEntry),
            Map.entry("time-scan", ReadEntryLog::timeScan),
            Map.entry("journal", ReadJournal::read),
            Map.entry("last-mark", ReadJournal::lastMark),
            Map.entry("rocksdb-rows", ReadIndex::rocksdbRows),
            Map.entry("db-locations", ReadIndex::locations),
            Map.entry("db-ledgers", ReadIndex::ledgers),
            Map.entry("idx-ledgers", ReadIndex::fileLedgers),
            Map.entry("ledger-data", ReadIndex::ledgerData),
            Map.entry("entry-log-metadata", ReadIndex::entryLogMetadata),
            Map.entry("paths", ReadIndex::paths),
            Map.entry("cookie", Texts::cookie),
            Map.entry("bookie-status", Texts::bookieStatus),
            Map.entry("ledger-metadata", Texts::ledgerMetadata),
            Map.entry("digest", Digests::compute),
            Map.entry("explicit-lac", Digests::explicitLac),
            Map.entry("verify", Digests::verify),
            Map.entry("master-key", Digests::masterKey));

    private static final ObjectMapper JSON = new ObjectMapper();

    private Driver() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream stdout = System.out;
        System.setOut(System.err);  // whatever a library prints must not get between the rows
        BufferedWriter answers =
                new BufferedWriter(new OutputStreamWriter(stdout, StandardCharsets.UTF_8), 1 << 16);
        if (arguments.length > 0) {
            answer(arguments, answers);
        } else {
            BufferedReader requests =
                    new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                answer(JSON.treeToValue(JSON.readTree(line), String[].class), answers);
            }
        }
        System.exit(0);  // some of BookKeeper's threads are not daemons
    }

    static void answer(String[] request, BufferedWriter answers) throws IOException {
        try {
            Command command = COMMANDS.get(request[0]);
            if (command == null) {
                throw new IllegalArgumentException("no such command: " + request[0]);
            }
            String[] arguments = Arrays.copyOfRange(request, 1, request.length);
            command.run(arguments, row -> line(answers, row));
            line(answers, Map.of("done", true));
        } catch (Throwable failure) {
            line(answers, Map.of("failed", describe(failure)));
        }
        answers.flush();
    }

    private static void line(BufferedWriter answers, Map<String, ?> row) throws IOException {
        answers.write(JSON.writeValueAsString(row));
        answers.write('\n');
    }

    /** The way BookKeeper's own messages name an error. */
    static String describe(Throwable failure) {
        return failure.toString();
    }

    /** A configuration for reading what stands in these directories (the parents of "current"). */
    static ServerConfiguration configuration(String journalDir, String... ledgerDirs) {
        ServerConfiguration conf = new ServerConfiguration();
        conf.setJournalDirName(journalDir);
        conf.setLedgerDirNames(ledgerDirs);
        conf.setDiskUsageThreshold(0.999f);  // a full disk of the tests' machine is not what is looked at
        conf.setDiskUsageWarnThreshold(0.999f);
        conf.setAllowLoopback(true);
        return conf;
    }

    static File current(String dir) {
        return new File(dir, "current");
    }
}
