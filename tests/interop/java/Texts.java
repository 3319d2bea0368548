package org.apache.bookkeeper.bookie;

import io.netty.buffer.ByteBufUtil;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.meta.LedgerMetadataSerDe;

/** Bytes through BookKeeper's parser and printer: cookies, BOOKIE_STATUS, ledger metadata. */
final class Texts {

    private Texts() {
    }

    /** Arguments: the bytes in hex. */
    static void cookie(String[] arguments, Driver.Rows rows) throws Exception {
        Cookie cookie = Cookie.parseFromBytes(ByteBufUtil.decodeHexDump(arguments[0]));
        byte[] again = cookie.toString().getBytes(StandardCharsets.UTF_8);
        rows.add(Map.of("bytes", ByteBufUtil.hexDump(again)));
    }

    /** Arguments: the bytes in hex. */
    static void bookieStatus(String[] arguments, Driver.Rows rows) throws Exception {
        byte[] bytes = ByteBufUtil.decodeHexDump(arguments[0]);
        BookieStatus status = new BookieStatus().parse(new BufferedReader(
                new InputStreamReader(new ByteArrayInputStream(bytes), StandardCharsets.UTF_8)));
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("bytes", status == null
                ? null : ByteBufUtil.hexDump(status.toString().getBytes(StandardCharsets.UTF_8)));
        row.put("read_only", status == null ? null : (Boolean) status.isInReadOnlyMode());
        rows.add(row);
    }

    /** Arguments: the bytes in hex, the ledger id, the store's creation time in ms or "". */
    static void ledgerMetadata(String[] arguments, Driver.Rows rows) throws Exception {
        LedgerMetadataSerDe serde = new LedgerMetadataSerDe();
        Optional<Long> ctime =
                arguments[2].isEmpty() ? Optional.empty() : Optional.of(Long.parseLong(arguments[2]));
        LedgerMetadata metadata = serde.parseConfig(
                ByteBufUtil.decodeHexDump(arguments[0]), Long.parseLong(arguments[1]), ctime);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("bytes", ByteBufUtil.hexDump(serde.serialize(metadata)));
        row.put("format_version", metadata.getMetadataFormatVersion());
        row.put("state", metadata.getState().name());
        row.put("ensemble_size", metadata.getEnsembleSize());
        row.put("write_quorum", metadata.getWriteQuorumSize());
        row.put("ack_quorum", metadata.getAckQuorumSize());
        row.put("length", metadata.getLength());
        row.put("last_entry", metadata.getLastEntryId());
        row.put("ctime_ms", metadata.getCtime());
        row.put("digest", metadata.hasPassword() ? metadata.getDigestType().name() : null);
        row.put("password", metadata.hasPassword() ? ByteBufUtil.hexDump(metadata.getPassword()) : null);
        Map<Long, Object> ensembles = new TreeMap<>();
        metadata.getAllEnsembles().forEach((first, bookies) ->
                ensembles.put(first, bookies.stream().map(Object::toString).toArray()));
        row.put("ensembles", ensembles);
        Map<String, String> custom = new TreeMap<>();
        metadata.getCustomMetadata().forEach((name, value) -> custom.put(name, ByteBufUtil.hexDump(value)));
        row.put("custom_metadata", custom);
        rows.add(row);
    }
}
