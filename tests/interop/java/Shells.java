package org.apache.bookkeeper.bookie;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Paths;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.util.EntryFormatter;
import org.apache.bookkeeper.util.LedgerIdFormatter;

/** Commands of {@code bookkeeper shell}, a line each on stdin, in one JVM: a JVM for each costs seconds. */
public final class Shells {
    private Shells() {
    }

    /** Takes the path of a bk_server.conf. What a command prints ends with a line {@code == exit code}. */
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ServerConfiguration conf = new ServerConfiguration();
            conf.loadConf(Paths.get(args[0]).toUri().toURL());
            int code;
            try {
                BookieShell shell = new BookieShell(LedgerIdFormatter.LONG_LEDGERID_FORMATTER, EntryFormatter.STRING_FORMATTER);
                shell.setConf(conf);
                code = shell.run(line.split(" "));
            } catch (Throwable error) {
                System.out.println(error);
                code = -99;
            }
            System.out.flush();
            System.out.println("== " + code);
        }
        System.exit(0);
    }
}
