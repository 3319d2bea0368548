package org.apache.bookkeeper.bookie;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.security.GeneralSecurityException;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import org.apache.bookkeeper.proto.DataFormats.LedgerMetadataFormat.DigestType;
import org.apache.bookkeeper.proto.checksum.DigestManager;
import org.apache.bookkeeper.util.ByteBufList;

/** DigestManager: what a client sends, and whether it accepts what it gets. */
final class Digests {

    private Digests() {
    }

    /** Arguments: type, password, ledger, entry, last add confirmed, length, payload (bytes in hex). */
    static void compute(String[] arguments, Driver.Rows rows) throws Exception {
        ByteBuf payload = Unpooled.wrappedBuffer(ByteBufUtil.decodeHexDump(arguments[6]));
        ByteBufList sent = (ByteBufList) manager(arguments[0], arguments[1], arguments[2])
                .computeDigestAndPackageForSending(
                        Long.parseLong(arguments[3]), Long.parseLong(arguments[4]), Long.parseLong(arguments[5]),
                        payload, new byte[20], 0);
        rows.add(Map.of("body", ByteBufUtil.hexDump(ByteBufList.coalesce(sent))));
    }

    /** Arguments: type, password, ledger, last add confirmed. */
    static void explicitLac(String[] arguments, Driver.Rows rows) throws Exception {
        ByteBufList sent = manager(arguments[0], arguments[1], arguments[2])
                .computeDigestAndPackageForSendingLac(Long.parseLong(arguments[3]));
        rows.add(Map.of("body", ByteBufUtil.hexDump(ByteBufList.coalesce(sent))));
    }

    /** Arguments: type, password, ledger, entry, body (bytes in hex). The payload, or why it was refused. */
    static void verify(String[] arguments, Driver.Rows rows) throws Exception {
        ByteBuf body = Unpooled.wrappedBuffer(ByteBufUtil.decodeHexDump(arguments[4]));
        Map<String, Object> row = new LinkedHashMap<>();
        try {
            ByteBuf payload = manager(arguments[0], arguments[1], arguments[2])
                    .verifyDigestAndReturnData(Long.parseLong(arguments[3]), body);
            row.put("payload", ByteBufUtil.hexDump(payload));
        } catch (Exception refused) {
            row.put("error", Driver.describe(refused));
        }
        rows.add(row);
    }

    /** Arguments: password in hex. */
    static void masterKey(String[] arguments, Driver.Rows rows) throws Exception {
        byte[] key = DigestManager.generateMasterKey(ByteBufUtil.decodeHexDump(arguments[0]));
        rows.add(Map.of("master_key", ByteBufUtil.hexDump(key)));
    }

    private static DigestManager manager(String type, String password, String ledger)
            throws GeneralSecurityException {
        return DigestManager.instantiate(
                Long.parseLong(ledger), ByteBufUtil.decodeHexDump(password), digestType(type),
                UnpooledByteBufAllocator.DEFAULT, false);
    }

    private static DigestType digestType(String name) {
        return name.equals("mac") ? DigestType.HMAC : DigestType.valueOf(name.toUpperCase(Locale.ROOT));
    }
}
