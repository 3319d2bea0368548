package org.apache.bookkeeper.bookie;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedWriter;
import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.OutputStream;
import java.io.OutputStreamWriter;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerClient;
import org.apache.bookkeeper.common.component.LifecycleComponentStack;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.replication.AutoRecoveryMain;
import org.apache.bookkeeper.server.Main;
import org.apache.bookkeeper.server.conf.BookieConfiguration;
import org.apache.zookeeper.server.ZooKeeperServerMain;

/**
 * Does a little of everything that the JVMs of the tests do, so that an archive of the classes that they load
 * can be made when this JVM ends: a ZooKeeper, a bookie with its HTTP admin, autorecovery, a client, and some
 * answers of the driver. Its argument is an empty directory.
 */
public final class Rehearsal {

    private Rehearsal() {
    }

    public static void main(String[] arguments) throws Exception {
        File folder = new File(arguments[0]);
        answerSomeRequests();
        String uri = "zk+hierarchical://127.0.0.1:" + startZooKeeper(folder) + "/ledgers";
        ServerConfiguration conf = configuration(folder, uri);
        BookKeeperAdmin.initNewCluster(conf);
        LifecycleComponentStack bookie = Main.buildBookieServer(new BookieConfiguration(conf));
        bookie.start();
        ServerConfiguration recovery = new ServerConfiguration(conf);
        recovery.setHttpServerEnabled(false);
        recovery.setBookieId("autorecovery");
        AutoRecoveryMain autorecovery = new AutoRecoveryMain(recovery);
        autorecovery.start();
        for (String page : new String[] {"/heartbeat", "/metrics", "/api/v1/bookie/info"}) {
            URL url = new URL("http://127.0.0.1:" + conf.getHttpServerPort() + page);
            url.openStream().readAllBytes();
        }
        autorecovery.shutdown();
        useClient(uri);  // ends this JVM
    }

    private static void answerSomeRequests() throws Exception {
        BufferedWriter nowhere =
                new BufferedWriter(new OutputStreamWriter(OutputStream.nullOutputStream(), StandardCharsets.UTF_8));
        String[][] requests = {
            {"paths", "1"},
            {"master-key", "00"},
            {"digest", "crc32c", "00", "1", "2", "3", "4", "aa"},
            {"digest", "mac", "00", "1", "2", "3", "4", "aa"},
        };
        for (String[] request : requests) {
            Driver.answer(request, nowhere);
        }
    }

    private static int startZooKeeper(File folder) throws Exception {
        int port = freePort();
        File conf = new File(folder, "zoo.cfg");
        Files.writeString(conf.toPath(), String.join("\n",
                "tickTime=500",
                "dataDir=" + new File(folder, "zookeeper"),
                "clientPort=" + port,
                "clientPortAddress=127.0.0.1",
                "admin.enableServer=false"));
        Thread server = new Thread(() -> ZooKeeperServerMain.main(new String[] {conf.getPath()}), "zookeeper");
        server.setDaemon(true);
        server.start();
        return port;
    }

    private static ServerConfiguration configuration(File folder, String uri) throws Exception {
        ServerConfiguration conf = Driver.configuration(
                new File(folder, "journal").getPath(), new File(folder, "ledgers").getPath());
        conf.setMetadataServiceUri(uri);
        conf.setLedgerStorageClass(DbLedgerStorage.class.getName());
        conf.setBookiePort(freePort());
        conf.setListeningInterface("lo");
        conf.setMinUsableSizeForEntryLogCreation(0);
        conf.setMinUsableSizeForIndexFileCreation(0);
        conf.setMinUsableSizeForHighPriorityWrites(0);
        conf.setProperty("journalPreAllocSizeMB", 4);
        conf.setProperty("dbStorage_writeCacheMaxSizeMb", 16);
        conf.setProperty("dbStorage_readAheadCacheMaxSizeMb", 16);
        conf.setProperty("dbStorage_rocksDB_blockCacheSize", 16L << 20);
        conf.setHttpServerEnabled(true);
        conf.setHttpServerPort(freePort());
        conf.setProperty("httpServerHost", "127.0.0.1");
        conf.setProperty("httpServerClass", "org.apache.bookkeeper.http.vertx.VertxHttpServer");
        conf.setProperty("enableStatistics", true);
        conf.setProperty(
                "statsProviderClass", "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider");
        return conf;
    }

    private static void useClient(String uri) throws Exception {
        String password = "7077";
        String[][] requests = {
            {"client", "c", "metadataServiceUri=" + uri, "useV2WireProtocol=false"},
            {"client", "d", "metadataServiceUri=" + uri, "useV2WireProtocol=true"},
            {"create", "h", "c", "1", "1", "1", "CRC32C", password},
            {"add", "h", "10", "100"},
            {"read", "h", "0", "9"},
            {"lac", "h", "read"},
            {"close", "h"},
            {"open", "r", "d", "0", "CRC32C", password, "true"},
            {"read", "r", "0", "9"},
            {"metadata", "c", "0"},
            {"info", "c"},
        };
        ObjectMapper json = new ObjectMapper();
        StringBuilder lines = new StringBuilder();
        for (String[] request : requests) {
            lines.append(json.writeValueAsString(request)).append('\n');
        }
        System.setIn(new ByteArrayInputStream(lines.toString().getBytes(StandardCharsets.UTF_8)));
        LedgerClient.main(new String[0]);
    }

    private static int freePort() throws Exception {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }
}
