import java.io.File;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.bookkeeper.conf.ServerConfiguration;

/** Prints what ServerConfiguration has after loadConf: key and items in hexadecimal, one key a line. */
public class PropertiesDump {
    private static String hex(String text) {
        StringBuilder out = new StringBuilder("x");
        for (char one : text.toCharArray()) {
            out.append(String.format("%04x", (int) one));
        }
        return out.toString();
    }

    public static void main(String[] files) throws Exception {
        for (String file : files) {
            System.out.println("file");
            ServerConfiguration conf = new ServerConfiguration();
            conf.loadConf(new File(file).toURI().toURL());
            for (Iterator<String> keys = conf.getKeys(); keys.hasNext();) {
                String key = keys.next();
                List<String> items = new ArrayList<>();
                for (Object item : conf.getList(key)) {
                    items.add(hex(String.valueOf(item)));
                }
                System.out.println(hex(key) + " " + String.join(" ", items));
            }
        }
    }
}
