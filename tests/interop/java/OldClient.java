package org.apache.bookkeeper.bookie;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Enumeration;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * What every client of BookKeeper does, with what every release since 4.14 offers.
 *
 * A program of its own, because it is compiled against each release. Arguments: the metadata URI, and a ledger to
 * read. Lines: "read ID COUNT" for that ledger; "closed ID" of a ledger of its own, closed with ten entries;
 * "fenced ID CODE" of one that another handle has recovered, with what the writer's next add was answered.
 */
public final class OldClient {

    private static final byte[] PASSWORD = "secret".getBytes(StandardCharsets.UTF_8);

    private OldClient() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream rows = System.out;
        System.setOut(System.err);  // whatever a library prints must not get between the rows
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(arguments[0]);
        try (BookKeeper client = new BookKeeper(conf); BookKeeper other = new BookKeeper(conf)) {
            long given = Long.parseLong(arguments[1]);
            rows.println("read " + given + " " + count(client, given));

            LedgerHandle closed = client.createLedger(1, 1, 1, DigestType.CRC32C, PASSWORD);
            for (int entry = 0; entry < 10; entry++) {
                closed.addEntry(entry(closed.getId(), entry));
            }
            closed.close();
            rows.println("closed " + closed.getId() + " " + count(other, closed.getId()));

            LedgerHandle open = client.createLedger(1, 1, 1, DigestType.CRC32C, PASSWORD);
            for (int entry = 0; entry < 10; entry++) {
                open.addEntry(entry(open.getId(), entry));
            }
            String answer;
            try (LedgerHandle recovered = other.openLedger(open.getId(), DigestType.CRC32C, PASSWORD)) {
                answer = recovered.getLastAddConfirmed() + " ";
            }
            try {
                open.addEntry(entry(open.getId(), 10));
                answer += "added";
            } catch (BKException error) {
                answer += error.getCode();
            }
            rows.println("fenced " + open.getId() + " " + answer);
        }
        rows.flush();
        System.exit(0);  // some of BookKeeper's threads are not daemons
    }

    private static byte[] entry(long ledger, long entry) {
        return (ledger + ":" + entry).getBytes(StandardCharsets.UTF_8);
    }

    /** The number of entries that are what was written. */
    private static int count(BookKeeper client, long ledger) throws Exception {
        int found = 0;
        try (LedgerHandle handle = client.openLedger(ledger, DigestType.CRC32C, PASSWORD)) {
            Enumeration<LedgerEntry> entries = handle.readEntries(0, handle.getLastAddConfirmed());
            while (entries.hasMoreElements()) {
                LedgerEntry next = entries.nextElement();
                String content = new String(next.getEntry(), StandardCharsets.UTF_8);
                found += content.equals(ledger + ":" + next.getEntryId()) ? 1 : 0;
            }
        }
        return found;
    }
}
