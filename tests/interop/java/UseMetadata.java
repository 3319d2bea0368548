package org.apache.bookkeeper.bookie;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.netty.buffer.ByteBufUtil;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.discover.BookieServiceInfo;
import org.apache.bookkeeper.discover.RegistrationClient;
import org.apache.bookkeeper.discover.RegistrationManager;
import org.apache.bookkeeper.meta.LedgerIdGenerator;
import org.apache.bookkeeper.meta.LedgerManager;
import org.apache.bookkeeper.meta.LedgerManagerFactory;
import org.apache.bookkeeper.meta.LedgerMetadataSerDe;
import org.apache.bookkeeper.meta.MetadataBookieDriver;
import org.apache.bookkeeper.meta.MetadataClientDriver;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.apache.bookkeeper.versioning.LongVersion;
import org.apache.bookkeeper.versioning.Version;
import org.apache.bookkeeper.versioning.Versioned;

/**
 * BookKeeper's own metadata drivers, bookie's and client's, on the cluster that the last "open" named.
 *
 * Requests and answers are those of {@link Driver}: a JSON array per line, JSON objects and {"done": true}.
 */
public final class UseMetadata {

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int SECONDS = 30;

    private final MetadataBookieDriver bookieDriver;
    private final MetadataClientDriver clientDriver;
    private final ScheduledExecutorService scheduler;
    private final RegistrationManager registration;
    private final RegistrationClient client;
    private final LedgerManagerFactory factory;
    private final LedgerManager ledgers;

    private UseMetadata(String uri) throws Exception {
        ServerConfiguration conf = new ServerConfiguration();
        conf.setMetadataServiceUri(uri);
        bookieDriver = MetadataDrivers.getBookieDriver(URI.create(uri));
        bookieDriver.initialize(conf, NullStatsLogger.INSTANCE);
        registration = bookieDriver.createRegistrationManager();
        scheduler = Executors.newSingleThreadScheduledExecutor();
        clientDriver = MetadataDrivers.getClientDriver(URI.create(uri));
        ClientConfiguration clientConf = new ClientConfiguration(conf);
        clientDriver.initialize(clientConf, scheduler, NullStatsLogger.INSTANCE, Optional.empty());
        client = clientDriver.getRegistrationClient();
        factory = bookieDriver.getLedgerManagerFactory();
        ledgers = factory.newLedgerManager();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        UseMetadata metadata = null;
        BufferedReader requests =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            try {
                String[] request = JSON.treeToValue(JSON.readTree(line), String[].class);
                if (request[0].equals("init")) {
                    answers.println(JSON.writeValueAsString(Map.of("answer", initialise(request[1]))));
                } else if (request[0].equals("open")) {
                    close(metadata);
                    metadata = null;
                    metadata = new UseMetadata(request[1]);
                    answers.println(JSON.writeValueAsString(Map.of("answer", true)));
                } else {
                    answers.println(JSON.writeValueAsString(Map.of("answer", metadata.answer(request))));
                }
                answers.println("{\"done\": true}");
            } catch (Throwable failure) {
                answers.println(JSON.writeValueAsString(Map.of("failed", failure.toString())));
            }
        }
        close(metadata);
        System.exit(0);
    }

    private static void close(UseMetadata metadata) throws Exception {
        if (metadata != null) {
            metadata.ledgers.close();
            metadata.registration.close();
            metadata.clientDriver.close();
            metadata.bookieDriver.close();
            metadata.scheduler.shutdown();
        }
    }

    private static boolean initialise(String uri) throws Exception {
        ServerConfiguration conf = new ServerConfiguration();
        conf.setMetadataServiceUri(uri);
        return BookKeeperAdmin.initNewCluster(conf);
    }

    private Object answer(String[] request) throws Exception {
        switch (request[0]) {
            case "instance-id":
                return registration.getClusterInstanceId();
            case "layout":
                return bookieDriver.getLayoutManager().readLedgerLayout().getManagerFactoryClass();
            case "writable":
                return names(client.getWritableBookies());
            case "read-only":
                return names(client.getReadOnlyBookies());
            case "all":
                return names(client.getAllBookies());
            case "endpoints":
                return endpoints(BookieId.parse(request[1]));
            case "register":
                registration.registerBookie(
                        BookieId.parse(request[1]), Boolean.parseBoolean(request[2]), information());
                return true;
            case "unregister":
                registration.unregisterBookie(BookieId.parse(request[1]), Boolean.parseBoolean(request[2]));
                return true;
            case "cookie":
                return ByteBufUtil.hexDump(registration.readCookie(BookieId.parse(request[1])).getValue());
            case "write-cookie":
                byte[] cookie = ByteBufUtil.decodeHexDump(request[2]);
                registration.writeCookie(BookieId.parse(request[1]), new Versioned<>(cookie, Version.NEW));
                return true;
            case "ledgers":
                return listed();
            case "ledger":
                return stored(Long.parseLong(request[1]));
            case "create":
                LedgerMetadata metadata = new LedgerMetadataSerDe().parseConfig(
                        ByteBufUtil.decodeHexDump(request[2]), Long.parseLong(request[1]), Optional.empty());
                wait(ledgers.createLedgerMetadata(Long.parseLong(request[1]), metadata));
                return true;
            case "delete":
                wait(ledgers.removeLedgerMetadata(
                        Long.parseLong(request[1]), new LongVersion(Long.parseLong(request[2]))));
                return true;
            case "new-id":
                return newId();
            default:
                throw new IllegalArgumentException("no such command: " + request[0]);
        }
    }

    private static BookieServiceInfo information() {
        BookieServiceInfo.Endpoint http = new BookieServiceInfo.Endpoint(
                "httpserver", 2321, "127.0.0.1", "http", List.of(), List.of());
        BookieServiceInfo.Endpoint rpc = new BookieServiceInfo.Endpoint(
                "bookie", 2311, "127.0.0.1", "bookie-rpc", List.of(), List.of());
        return new BookieServiceInfo(Map.of(), List.of(http, rpc));
    }

    private Object endpoints(BookieId bookie) throws Exception {
        List<Object> rows = new ArrayList<>();
        BookieServiceInfo information = wait(client.getBookieServiceInfo(bookie)).getValue();
        for (BookieServiceInfo.Endpoint found : information.getEndpoints()) {
            rows.add(List.of(found.getId(), found.getPort(), found.getHost(), found.getProtocol()));
        }
        return rows;
    }

    private Object listed() throws Exception {
        List<Long> ids = new ArrayList<>();
        LedgerManager.LedgerRangeIterator ranges = ledgers.getLedgerRanges(0);
        while (ranges.hasNext()) {
            ids.addAll(ranges.next().getLedgers());
        }
        return ids;
    }

    private Object stored(long ledger) throws Exception {
        Versioned<LedgerMetadata> found = wait(ledgers.readLedgerMetadata(ledger));
        long version = ((LongVersion) found.getVersion()).getLongVersion();
        return List.of(ByteBufUtil.hexDump(new LedgerMetadataSerDe().serialize(found.getValue())), version);
    }

    private Object newId() throws Exception {
        CompletableFuture<Long> id = new CompletableFuture<>();
        LedgerIdGenerator generator = factory.newLedgerIdGenerator();
        generator.generateLedgerId((code, result) -> {
            if (code == 0) {
                id.complete(result);
            } else {
                id.completeExceptionally(new IllegalStateException("code " + code));
            }
        });
        return wait(id);
    }

    private static Collection<String> names(
            CompletableFuture<Versioned<Set<BookieId>>> bookies) throws Exception {
        TreeSet<String> names = new TreeSet<>();
        wait(bookies).getValue().forEach(bookie -> names.add(bookie.getId()));
        return names;
    }

    private static <T> T wait(CompletableFuture<T> future) throws Exception {
        return future.get(SECONDS, TimeUnit.SECONDS);
    }
}
