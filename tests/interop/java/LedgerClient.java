// In the client's own package because what it knows of the cluster is package-private.
package org.apache.bookkeeper.client;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Enumeration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.common.component.LifecycleComponentStack;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.proto.BookieClient;
import org.apache.bookkeeper.proto.BookieProtocol;
import org.apache.bookkeeper.proto.checksum.DigestManager;
import org.apache.bookkeeper.server.Main;
import org.apache.bookkeeper.server.conf.BookieConfiguration;
import org.apache.bookkeeper.util.AvailabilityOfEntriesOfLedger;
import org.apache.bookkeeper.util.ByteBufList;

/**
 * BookKeeper's own client, driven line by line: a JSON array ["command", argument, ...] per line in, one
 * JSON object {"answer": ...} and then {"done": true}, or {"failed": "..."}, out.
 *
 * Clients and ledger handles live under names that the other side chooses. ["start", key, command, ...] runs
 * a command in the background, ["await", key] gives its answer. Entry e of ledger l holds the text "l:e:"
 * again and again, cut to its size, so that the other side knows every payload without being told.
 */
public final class LedgerClient {

    private interface Command {
        Object run(String[] arguments) throws Exception;
    }

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int SECONDS = 60;
    private static final int OUTSTANDING_BYTES_MAX = 64 << 20;

    private final Map<String, BookKeeper> clients = new ConcurrentHashMap<>();
    private final Map<String, LedgerHandle> handles = new ConcurrentHashMap<>();
    private final Map<String, LifecycleComponentStack> bookies = new ConcurrentHashMap<>();
    private final Map<String, Future<Object>> started = new ConcurrentHashMap<>();
    private final ExecutorService background = Executors.newCachedThreadPool();
    private final Map<String, Command> commands = Map.ofEntries(
            Map.entry("start", this::start),
            Map.entry("await", arguments -> started.remove(arguments[0]).get(SECONDS, TimeUnit.SECONDS)),
            Map.entry("client", this::client),
            Map.entry("close-client", this::closeClient),
            Map.entry("known", this::known),
            Map.entry("create", this::create),
            Map.entry("open", this::open),
            Map.entry("close", this::close),
            Map.entry("add", this::add),
            Map.entry("add-at", this::addAt),
            Map.entry("force", this::force),
            Map.entry("read", this::read),
            Map.entry("read-unconfirmed", this::readUnconfirmed),
            Map.entry("batch-read", this::batchRead),
            Map.entry("long-poll", this::longPoll),
            Map.entry("lac", this::lac),
            Map.entry("replica", this::replica),
            Map.entry("late-add", this::lateAdd),
            Map.entry("info", this::info),
            Map.entry("held", this::held),
            Map.entry("delete", this::delete),
            Map.entry("start-bookie", this::startBookie),
            Map.entry("stop-bookie", this::stopBookie),
            Map.entry("private-key", LedgerClient::privateKey),
            Map.entry("metadata", this::metadata));

    private LedgerClient() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);  // whatever a library prints must not get between the answers
        LedgerClient state = new LedgerClient();
        BufferedReader requests =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            try {
                Object answer = state.answer(JSON.treeToValue(JSON.readTree(line), String[].class));
                answers.println(JSON.writeValueAsString(Map.of("answer", answer)));
                answers.println("{\"done\": true}");
            } catch (Throwable failure) {
                answers.println(JSON.writeValueAsString(Map.of("failed", describe(failure))));
            }
        }
        System.exit(0);  // open clients are gone as after a crash
    }

    private Object answer(String[] request) throws Exception {
        Command command = commands.get(request[0]);
        if (command == null) {
            throw new IllegalArgumentException("no such command: " + request[0]);
        }
        return command.run(Arrays.copyOfRange(request, 1, request.length));
    }

    /** An error of the client with its code, which is what programs go by. */
    private static String describe(Throwable failure) {
        Throwable cause = failure;
        while (cause instanceof ExecutionException && cause.getCause() != null) {
            cause = cause.getCause();
        }
        if (cause instanceof org.apache.bookkeeper.client.api.BKException) {
            int code = ((org.apache.bookkeeper.client.api.BKException) cause).getCode();
            return name(code) + ": " + cause.getMessage();
        }
        return cause.toString();
    }

    private static String name(int code) {
        return BKException.create(code).getClass().getSimpleName() + "(" + code + ")";
    }

    // --- clients --------------------------------------------------------------------------------------------

    private Object start(String[] arguments) {
        String[] request = Arrays.copyOfRange(arguments, 1, arguments.length);
        started.put(arguments[0], background.submit(() -> answer(request)));
        return true;
    }

    private Object client(String[] arguments) throws Exception {
        ClientConfiguration conf = new ClientConfiguration();
        for (String setting : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            String[] pair = setting.split("=", 2);
            conf.setProperty(pair[0], pair[1]);
        }
        clients.put(arguments[0], new BookKeeper(conf));
        return true;
    }

    private Object closeClient(String[] arguments) throws Exception {
        clients.remove(arguments[0]).close();
        return true;
    }

    /** The bookies that this client would choose for a new ledger. */
    private Object known(String[] arguments) {
        TopologyAwareEnsemblePlacementPolicy policy =
                (TopologyAwareEnsemblePlacementPolicy) clients.get(arguments[0]).getPlacementPolicy();
        TreeSet<String> names = new TreeSet<>();
        policy.rwLock.readLock().lock();
        try {
            policy.knownBookies.keySet().forEach(bookie -> names.add(bookie.getId()));
        } finally {
            policy.rwLock.readLock().unlock();
        }
        return names;
    }

    // --- ledgers --------------------------------------------------------------------------------------------

    /** handle, client, E, Qw, Qa, digest, password; then "deferred", "adv" or "ledger=ID". */
    private Object create(String[] arguments) throws Exception {
        List<String> options = Arrays.asList(arguments).subList(7, arguments.length);
        CreateBuilder builder = clients.get(arguments[1]).newCreateLedgerOp()
                .withEnsembleSize(Integer.parseInt(arguments[2]))
                .withWriteQuorumSize(Integer.parseInt(arguments[3]))
                .withAckQuorumSize(Integer.parseInt(arguments[4]))
                .withDigestType(DigestType.valueOf(arguments[5]))
                .withPassword(HexFormat.of().parseHex(arguments[6]));
        if (options.contains("deferred")) {
            builder = builder.withWriteFlags(WriteFlag.DEFERRED_SYNC);
        }
        Object handle;
        if (options.contains("adv")) {
            handle = wait(builder.makeAdv().execute());
        } else if (options.size() == 1 && options.get(0).startsWith("ledger=")) {
            long ledger = Long.parseLong(options.get(0).substring("ledger=".length()));
            handle = wait(builder.makeAdv().withLedgerId(ledger).execute());
        } else {
            handle = wait(builder.execute());
        }
        handles.put(arguments[0], (LedgerHandle) handle);
        return ((LedgerHandle) handle).getId();
    }

    /** handle, client, ledger, digest, password, recovery. */
    private Object open(String[] arguments) throws Exception {
        BookKeeper client = clients.get(arguments[1]);
        long ledger = Long.parseLong(arguments[2]);
        BookKeeper.DigestType digest = BookKeeper.DigestType.fromApiDigestType(DigestType.valueOf(arguments[3]));
        byte[] password = HexFormat.of().parseHex(arguments[4]);
        LedgerHandle handle = Boolean.parseBoolean(arguments[5])
                ? client.openLedger(ledger, digest, password)
                : client.openLedgerNoRecovery(ledger, digest, password);
        handles.put(arguments[0], handle);
        return List.of(handle.getLastAddConfirmed(), handle.getLength(), handle.isClosed());
    }

    private Object close(String[] arguments) throws Exception {
        handles.remove(arguments[0]).close();
        return true;
    }

    private Object delete(String[] arguments) throws Exception {
        clients.get(arguments[0]).deleteLedger(Long.parseLong(arguments[1]));
        return true;
    }

    private Object metadata(String[] arguments) throws Exception {
        LedgerMetadata found = wait(clients.get(arguments[0]).getLedgerMetadata(Long.parseLong(arguments[1])));
        Map<Long, List<String>> ensembles = new TreeMap<>();
        found.getAllEnsembles().forEach((first, bookies) -> {
            List<String> names = new ArrayList<>();
            bookies.forEach(bookie -> names.add(bookie.getId()));
            ensembles.put(first, names);
        });
        return Map.of(
                "state", found.getState().name(),
                "last_entry", found.getState() == LedgerMetadata.State.CLOSED ? found.getLastEntryId() : -2,
                "ensembles", ensembles);
    }

    // --- adds -----------------------------------------------------------------------------------------------

    private static byte[] payload(long ledger, long entry, int size) {
        byte[] seed = (ledger + ":" + entry + ":").getBytes(StandardCharsets.US_ASCII);
        byte[] bytes = new byte[size];
        for (int at = 0; at < size; at++) {
            bytes[at] = seed[at % seed.length];
        }
        return bytes;
    }

    /** handle, count, size: entries one behind the other, as many at once as fit into a bound of bytes. */
    private Object add(String[] arguments) throws Exception {
        LedgerHandle handle = handles.get(arguments[0]);
        int count = Integer.parseInt(arguments[1]);
        long first = handle.getLastAddPushed() + 1;
        long[] entries = new long[count];
        for (int at = 0; at < count; at++) {
            entries[at] = first + at;
        }
        return add(handle, entries, Integer.parseInt(arguments[2]), false);
    }

    /** handle, size, entry, entry, ...: in that order, all at once. */
    private Object addAt(String[] arguments) throws Exception {
        long[] entries = Arrays.stream(arguments).skip(2).mapToLong(Long::parseLong).toArray();
        return add(handles.get(arguments[0]), entries, Integer.parseInt(arguments[1]), true);
    }

    private static Object add(LedgerHandle handle, long[] entries, int size, boolean chosen) throws Exception {
        AtomicIntegerArray codes = new AtomicIntegerArray(entries.length);
        CountDownLatch missing = new CountDownLatch(entries.length);
        int outstanding = chosen ? entries.length : Math.max(1, OUTSTANDING_BYTES_MAX / (size + 64));
        Semaphore room = new Semaphore(outstanding);
        for (int at = 0; at < entries.length; at++) {
            room.acquire();
            int place = at;
            AsyncCallback.AddCallback callback = (code, from, entry, context) -> {
                boolean wrong = code == 0 && entry != entries[place];
                codes.set(place, wrong ? BKException.Code.UnexpectedConditionException : code);
                room.release();
                missing.countDown();
            };
            byte[] payload = payload(handle.getId(), entries[at], size);
            if (chosen) {
                handle.asyncAddEntry(entries[at], payload, callback, null);
            } else {
                handle.asyncAddEntry(payload, callback, null);
            }
        }
        if (!missing.await(SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException(missing.getCount() + " adds have no answer");
        }
        List<Long> acknowledged = new ArrayList<>();
        Map<String, Integer> failed = new TreeMap<>();
        for (int at = 0; at < entries.length; at++) {
            if (codes.get(at) == 0) {
                acknowledged.add(entries[at]);
            } else {
                failed.merge(name(codes.get(at)), 1, Integer::sum);
            }
        }
        return Map.of("acknowledged", acknowledged, "failed", failed);
    }

    private Object force(String[] arguments) throws Exception {
        wait(handles.get(arguments[0]).force());
        return true;
    }

    // --- reads ----------------------------------------------------------------------------------------------

    private Object read(String[] arguments) throws Exception {
        LedgerHandle handle = handles.get(arguments[0]);
        return rows(handle.readEntries(Long.parseLong(arguments[1]), Long.parseLong(arguments[2])));
    }

    private Object readUnconfirmed(String[] arguments) throws Exception {
        LedgerHandle handle = handles.get(arguments[0]);
        return rows(handle.readUnconfirmedEntries(Long.parseLong(arguments[1]), Long.parseLong(arguments[2])));
    }

    private Object batchRead(String[] arguments) throws Exception {
        LedgerHandle handle = handles.get(arguments[0]);
        return rows(handle.batchReadEntries(
                Long.parseLong(arguments[1]), Integer.parseInt(arguments[2]), Long.parseLong(arguments[3])));
    }

    private static Object rows(Enumeration<LedgerEntry> entries) throws Exception {
        List<Object> rows = new ArrayList<>();
        while (entries.hasMoreElements()) {
            LedgerEntry entry = entries.nextElement();
            rows.add(row(entry.getEntryId(), entry.getEntry()));
        }
        return rows;
    }

    private static Object row(long entry, byte[] payload) throws Exception {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(payload);
        return List.of(entry, payload.length, HexFormat.of().formatHex(digest));
    }

    /** handle, entry, milliseconds: the LAC when it has passed the entry or the time is over, and the entry. */
    private Object longPoll(String[] arguments) throws Exception {
        LedgerHandle handle = handles.get(arguments[0]);
        try (LastConfirmedAndEntry found = wait(handle.readLastAddConfirmedAndEntryAsync(
                Long.parseLong(arguments[1]), Long.parseLong(arguments[2]), false))) {
            List<Object> rows = new ArrayList<>();
            if (found.hasEntry()) {
                rows.add(row(found.getEntry().getEntryId(), found.getEntry().getEntryBytes()));
            }
            return List.of(found.getLastAddConfirmed(), rows);
        }
    }

    private Object lac(String[] arguments) throws Exception {
        LedgerHandle handle = handles.get(arguments[0]);
        switch (arguments[1]) {
            case "handle":
                return handle.getLastAddConfirmed();
            case "read":
                return handle.readLastConfirmed();
            case "try":
                return handle.tryReadLastConfirmed();
            case "explicit":
                return handle.readExplicitLastConfirmed();
            default:
                throw new IllegalArgumentException("no such way: " + arguments[1]);
        }
    }

    /** client, bookie, ledger, first, last, skip: the SHA-256 of what the bookie has behind that many bytes. */
    private Object replica(String[] arguments) throws Exception {
        BookieClient client = clients.get(arguments[0]).getClientCtx().getBookieClient();
        BookieId bookie = BookieId.parse(arguments[1]);
        long ledger = Long.parseLong(arguments[2]);
        long first = Long.parseLong(arguments[3]);
        int count = (int) (Long.parseLong(arguments[4]) - first + 1);
        int skip = Integer.parseInt(arguments[5]);
        String[] found = new String[count];
        CountDownLatch missing = new CountDownLatch(count);
        for (int at = 0; at < count; at++) {
            int place = at;
            client.readEntry(bookie, ledger, first + at, (code, itsLedger, entry, body, context) -> {
                found[place] = code == 0 ? hash(body, skip) : name(code);
                missing.countDown();
            }, null, BookieProtocol.FLAG_NONE);
        }
        if (!missing.await(SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException(missing.getCount() + " reads have no answer");
        }
        return found;
    }

    /** client, bookie, ledger, entry, password: what one bookie says to an add by a writer that has the key. */
    private Object lateAdd(String[] arguments) throws Exception {
        BookieClient client = clients.get(arguments[0]).getClientCtx().getBookieClient();
        long ledger = Long.parseLong(arguments[2]);
        long entry = Long.parseLong(arguments[3]);
        byte[] key = DigestManager.generateMasterKey(HexFormat.of().parseHex(arguments[4]));
        ByteBuf body = Unpooled.buffer().writeLong(ledger).writeLong(entry).writeLong(-1).writeLong(0);
        CompletableFuture<String> said = new CompletableFuture<>();
        client.addEntry(BookieId.parse(arguments[1]), ledger, key, entry, ByteBufList.get(body),
                (code, its, id, bookie, context) -> said.complete(name(code)),
                null, BookieProtocol.FLAG_NONE, false, WriteFlag.NONE);
        return wait(said);
    }

    private static String hash(ByteBuf body, int skip) {
        try {
            byte[] bytes = new byte[body.readableBytes() - skip];
            body.getBytes(body.readerIndex() + skip, bytes);
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (Exception failure) {
            return failure.toString();
        }
    }

    /** client: bookie to its free and total bytes. */
    private Object info(String[] arguments) throws Exception {
        Map<String, Object> rows = new TreeMap<>();
        clients.get(arguments[0]).getBookieInfo().forEach((bookie, space) ->
                rows.put(bookie.getId(), List.of(space.getFreeDiskSpace(), space.getTotalDiskSpace())));
        return rows;
    }

    /** client, bookie, ledger, bound: the entries below the bound that the bookie says it has; how many in all. */
    private Object held(String[] arguments) throws Exception {
        BookieClient client = clients.get(arguments[0]).getClientCtx().getBookieClient();
        AvailabilityOfEntriesOfLedger found = wait(client.getListOfEntriesOfLedger(
                BookieId.parse(arguments[1]), Long.parseLong(arguments[2])));
        List<Long> entries = new ArrayList<>();
        for (long entry = 0; entry < Long.parseLong(arguments[3]); entry++) {
            if (found.isEntryAvailable(entry)) {
                entries.add(entry);
            }
        }
        return List.of(entries, found.getTotalNumOfAvailableEntries());
    }

    /** name, configuration file: a bookie as the release starts it, in this JVM, which is warm. */
    private Object startBookie(String[] arguments) throws Exception {
        ServerConfiguration conf = new ServerConfiguration();
        conf.loadConf(new File(arguments[1]).toURI().toURL());
        conf.validate();
        LifecycleComponentStack bookie = Main.buildBookieServer(new BookieConfiguration(conf));
        bookie.start();
        bookies.put(arguments[0], bookie);
        return true;
    }

    private Object stopBookie(String[] arguments) {
        bookies.remove(arguments[0]).close();
        return true;
    }

    /** keystore, its password, alias: the private key as PKCS#8 in base64, which keytool does not export. */
    private static Object privateKey(String[] arguments) throws Exception {
        char[] password = arguments[1].toCharArray();
        KeyStore keys = KeyStore.getInstance(new File(arguments[0]), password);
        return Base64.getMimeEncoder(64, new byte[] {'\n'})
                .encodeToString(keys.getKey(arguments[2], password).getEncoded());
    }

    private static <T> T wait(CompletableFuture<T> future) throws Exception {
        return future.get(SECONDS, TimeUnit.SECONDS);
    }
}
