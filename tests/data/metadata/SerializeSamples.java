// Prints the lines of java-serialized.txt: name, TAB, hex of what BookKeeper writes.
// With the jars of bookkeeper-server 4.17.3 and what it depends on in $CP:
//   java -cp "$CP" tests/data/metadata/SerializeSamples.java > tests/data/metadata/java-serialized.txt

import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import org.apache.bookkeeper.bookie.Cookie;
import org.apache.bookkeeper.client.LedgerMetadataBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerMetadata.State;
import org.apache.bookkeeper.meta.LedgerMetadataSerDe;
import org.apache.bookkeeper.net.BookieId;

public class SerializeSamples {
    static void print(String name, byte[] bytes) {
        System.out.println(name + "\t" + HexFormat.of().formatHex(bytes));
    }

    public static void main(String[] args) throws Exception {
        byte[] everyByte = new byte[256];
        for (int i = 0; i < 256; i++) {
            everyByte[i] = (byte) i;
        }
        for (int version = 1; version <= 3; version++) {
            for (State state : State.values()) {
                LedgerMetadataBuilder builder = LedgerMetadataBuilder.create().withId(7)
                    .withMetadataFormatVersion(version)
                    .withEnsembleSize(2).withWriteQuorumSize(2).withAckQuorumSize(version == 1 ? 2 : 1)
                    .newEnsembleEntry(0L, Arrays.asList(BookieId.parse("b1:3181"), BookieId.parse("b2:3181")))
                    .newEnsembleEntry(5L, Arrays.asList(BookieId.parse("b1:3181"), BookieId.parse("my-id")));
                if (version > 1) {
                    builder = builder.withPassword(everyByte).withDigestType(DigestType.MAC)
                        .withCreationTime(1795261430556L).storingCreationTime(true).withCToken(42L)
                        .withCustomMetadata(Map.of("k\u00e9\"'", new byte[] {0, 7, 11, 34, 39, 92, 127, -56}));
                }
                if (state == State.IN_RECOVERY) {
                    builder = builder.withInRecoveryState();
                } else if (state == State.CLOSED) {
                    builder = builder.withClosedState().withLastEntryId(9).withLength(1000);
                }
                print(version + " " + state, new LedgerMetadataSerDe().serialize(builder.build()));
            }
        }
        StringBuilder text = new StringBuilder();
        for (char c = 1; c < 128; c++) {
            text.append(c);
        }
        Cookie cookie = Cookie.newBuilder().setLayoutVersion(5).setBookieId(text + "\u00e9\u20ac")
            .setJournalDirs("/j1,/j2").setLedgerDirs("2\t/l1\t/l2").setInstanceId("i").setIndexDirs("1\t/x")
            .build();
        print("cookie", cookie.toString().getBytes("UTF-8"));
    }
}
