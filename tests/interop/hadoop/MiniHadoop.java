import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * HDFS with two data nodes and YARN with two node managers, on free ports of the loopback, until stdin ends.
 *
 * <p>Usage: {@code java -cp JARS MiniHadoop.java FOLDER}. The configuration of its clients goes to FOLDER/conf;
 * then one line says {@code ready URL}.
 */
public class MiniHadoop {
    private static final long STOP_MS_MAX = 5_000;

    public static void main(String[] arguments) {
        try {
            MiniYARNCluster yarn = start(new File(arguments[0]));
            while (System.in.read() >= 0) {
                // until whoever started it is gone
            }
            Thread stop = new Thread(yarn::stop); // ends what runs in containers
            stop.start();
            stop.join(STOP_MS_MAX);
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) { // threads that were started would keep the process
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static MiniYARNCluster start(File folder) throws Exception {
        Configuration conf = new YarnConfiguration();
        conf.setInt("dfs.replication", 2);
        conf.set("yarn.resourcemanager.scheduler.class",
            "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler");
        conf.setInt("yarn.scheduler.minimum-allocation-mb", 256);
        conf.setInt("yarn.nodemanager.resource.memory-mb", 3072);
        conf.setInt("yarn.nodemanager.heartbeat.interval-ms", 200);
        conf.setInt("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms", 200);
        // Whatever else is on the disks and in the memory of this machine.
        conf.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        conf.setBoolean("yarn.nodemanager.disk-health-checker.enable", false);
        MiniDFSCluster hdfs = new MiniDFSCluster.Builder(conf, new File(folder, "hdfs")).numDataNodes(2).build();
        hdfs.waitActive();
        MiniYARNCluster yarn = new MiniYARNCluster("yarn", 2, 1, 1);
        yarn.init(conf);
        yarn.start();
        if (!yarn.waitForNodeManagersToConnect(60_000)) {
            throw new IllegalStateException("the node managers did not connect");
        }
        write(yarn.getConfig(), new File(folder, "conf"));
        System.out.println("ready " + hdfs.getURI());
        System.out.flush();
        return yarn;
    }

    /** A client reads all three files, each with defaults of its own in front. */
    private static void write(Configuration all, File folder) throws Exception {
        Configuration own = new Configuration(false);
        for (Map.Entry<String, String> entry : all) {
            String[] sources = all.getPropertySources(entry.getKey());
            if (sources != null && sources.length > 0 && sources[sources.length - 1].equals("programmatically")) {
                own.set(entry.getKey(), entry.getValue());
            }
        }
        own.unset("net.topology.node.switch.mapping.impl"); // a class of Hadoop's tests, which clients lack
        folder.mkdirs();
        for (String name : new String[] {"core-site.xml", "hdfs-site.xml", "yarn-site.xml"}) {
            try (OutputStream stream = new FileOutputStream(new File(folder, name))) {
                own.writeXml(stream);
            }
        }
    }
}
