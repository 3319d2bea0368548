package org.apache.bookkeeper.bookie;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.security.MessageDigest;
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
 * "bookie CLASS JOURNAL INDEX,... LEDGER,...": starts a whole bookie, journal replay included, without a
 * metadata store and without garbage collection; for every "ledger entry" on standard input it prints the
 * SHA-256 of the body that a read gives, or the error; at the end of the input it shuts down.
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
            try {
                serve(configuration(arguments[1], arguments[2], arguments[3], arguments[4]), answers);
            } catch (Throwable failure) {
                failure.printStackTrace();
                System.exit(1);  // threads of a bookie that did not start would keep the JVM alive
            }
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

    private static void serve(ServerConfiguration conf, PrintStream answers) throws Exception {
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
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] ids = line.split(" ");
            answers.println(digest(bookie, Long.parseLong(ids[0]), Long.parseLong(ids[1])));
        }
        bookie.shutdown();
    }

    private static String digest(BookieImpl bookie, long ledger, long entry) {
        try {
            ByteBuf body = bookie.readEntry(ledger, entry);
            byte[] bytes = new byte[body.readableBytes()];
            body.readBytes(bytes);
            body.release();
            StringBuilder hex = new StringBuilder();
            for (byte octet : MessageDigest.getInstance("SHA-256").digest(bytes)) {
                hex.append(String.format("%02x", octet));
            }
            return hex.toString();
        } catch (Throwable failure) {
            return failure.toString().replace('\n', ' ');
        }
    }
}
