package org.apache.bookkeeper.bookie;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.security.MessageDigest;
import java.util.HexFormat;
import org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage;
import org.apache.bookkeeper.bookie.storage.ldb.LocationsIndexRebuildOp;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.discover.BookieServiceInfo;
import org.apache.bookkeeper.meta.NullMetadataBookieDriver;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.apache.bookkeeper.util.DiskChecker;

/**
 * What a test needs of a bookie besides reading its files, in a JVM of its own.
 *
 * "locations DIR": BookKeeper's own rebuild of the locations of a ledger directory; prints the seconds.
 * "bookies": starts whole bookies one after the other, journal replay included, without a metadata store and
 * without garbage collection. On standard input, fields apart by tabs:
 * "start CLASS JOURNALS INDEXES LEDGERS [KEY=VALUE...]" (directories apart by commas) answers "started" or the
 * error; "read LEDGER ENTRY" answers the SHA-256 of the body, or the error; "stop" shuts the bookie down, flushed,
 * and answers "stopped" or the error.
 */
public final class RebuildIndex {

    private RebuildIndex() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        if (arguments[0].equals("locations")) {
            long start = System.nanoTime();
            new LocationsIndexRebuildOp(configuration(DbLedgerStorage.class.getName(), arguments[1], null, arguments[1]))
                    .initiate();
            answers.println((System.nanoTime() - start) / 1e9);
        } else {
            serve(answers);
        }
        answers.flush();
        System.exit(0);
    }

    private static ServerConfiguration configuration(
            String storage, String journals, String indexes, String ledgers) throws Exception {
        ServerConfiguration conf = Driver.configuration("unused", ledgers.split(","));
        conf.setJournalDirsName(journals.split(","));
        if (indexes != null) {
            conf.setIndexDirName(indexes.split(","));
        }
        conf.setLedgerStorageClass(storage);
        conf.setGcWaitTime(86_400_000L);  // a collection without a metadata store would delete every ledger
        conf.setMinorCompactionInterval(0);
        conf.setMajorCompactionInterval(0);
        conf.setMetadataServiceUri("null:///ledgers");
        conf.setMinUsableSizeForEntryLogCreation(0);
        conf.setMinUsableSizeForIndexFileCreation(0);
        conf.setProperty("dbStorage_writeCacheMaxSizeMb", 32);
        conf.setProperty("dbStorage_readAheadCacheMaxSizeMb", 32);
        conf.setProperty("dbStorage_rocksDB_blockCacheSize", 32L << 20);
        return conf;
    }

    private static void serve(PrintStream answers) throws Exception {
        BookieImpl bookie = null;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] fields = line.split("\t");
            String answer;
            try {
                if (fields[0].equals("read")) {
                    answer = digest(bookie, Long.parseLong(fields[1]), Long.parseLong(fields[2]));
                } else if (fields[0].equals("start")) {
                    bookie = started(fields);
                    answer = "started";
                } else {
                    bookie.shutdown();
                    bookie = null;
                    answer = "stopped";
                }
            } catch (Throwable failure) {
                failure.printStackTrace();
                answer = failure.toString().replace('\n', ' ');
            }
            answers.println(answer);
            answers.flush();
        }
    }

    private static BookieImpl started(String[] fields) throws Exception {
        ServerConfiguration conf = configuration(fields[1], fields[2], fields[3], fields[4]);
        for (int at = 5; at < fields.length; at++) {
            String[] pair = fields[at].split("=", 2);
            conf.setProperty(pair[0], pair[1]);
        }
        NullMetadataBookieDriver metadata = new NullMetadataBookieDriver();
        DiskChecker disks = BookieResources.createDiskChecker(conf);
        NullStatsLogger stats = NullStatsLogger.INSTANCE;
        LedgerDirsManager ledgerDirs = BookieResources.createLedgerDirsManager(conf, disks, stats);
        LedgerDirsManager indexDirs = BookieResources.createIndexDirsManager(conf, disks, stats, ledgerDirs);
        LedgerStorage storage = BookieResources.createLedgerStorage(
                conf, metadata.getLedgerManagerFactory().newLedgerManager(), ledgerDirs, indexDirs, stats,
                UnpooledByteBufAllocator.DEFAULT);
        BookieImpl bookie = new BookieImpl(
                conf, metadata.createRegistrationManager(), storage, disks, ledgerDirs, indexDirs, stats,
                UnpooledByteBufAllocator.DEFAULT, BookieServiceInfo.NO_INFO);
        bookie.start();
        if (!bookie.isRunning()) {
            throw new IllegalStateException("the bookie did not start; its reason is on standard error");
        }
        return bookie;
    }

    private static String digest(BookieImpl bookie, long ledger, long entry) {
        try {
            ByteBuf body = bookie.readEntry(ledger, entry);
            byte[] bytes = new byte[body.readableBytes()];
            body.readBytes(bytes);
            body.release();
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (Throwable failure) {
            return failure.toString().replace('\n', ' ');
        }
    }
}
