import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A name node and one data node, WebHDFS on 127.0.0.1; ends when it is killed. For tests. */
public class MiniHdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, arguments[0]);
        settings.set("dfs.namenode.http-address", "127.0.0.1:" + arguments[1]);
        settings.set("dfs.datanode.http.address", "127.0.0.1:0");
        settings.set("dfs.datanode.address", "127.0.0.1:0");
        settings.set("dfs.datanode.ipc.address", "127.0.0.1:0");
        settings.setBoolean("dfs.permissions.enabled", true);
        settings.setLong("dfs.namenode.fs-limits.min-block-size", 1 << 20);
        MiniDFSCluster cluster =
            new MiniDFSCluster.Builder(settings)
                .numDataNodes(1)
                .nameNodeHttpPort(Integer.parseInt(arguments[1]))
                .checkDataNodeHostConfig(true)
                .build();
        cluster.waitActive();
        try (FileSystem files = cluster.getFileSystem()) {
            org.apache.hadoop.fs.Path root = new org.apache.hadoop.fs.Path("/checkpoints");
            files.mkdirs(root);
            files.setPermission(root, new FsPermission((short) 0777));
        }
        Files.writeString(Path.of(arguments[2]), "ready");
        Thread.currentThread().join();
    }
}
