import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;
import org.apache.spark.SparkUserAppException;
import org.apache.spark.deploy.SparkSubmit;

/**
 * Runs submissions in one JVM, one after the other: a line of JSON in, {"args": [...]}, a line of JSON out,
 * {"exit": n, "error": "..."}. Each goes through both of spark-submit's parsers: launcher.Main writes
 * the command as it does for bin/spark-class, and a new SparkSubmit gets the arguments of that command.
 * What a submission may leave behind in the JVM, system properties and the context class loader, is restored.
 */
public final class Oracle {
  private static final String SUBMIT = "org.apache.spark.deploy.SparkSubmit";

  public static void main(String[] ignored) throws IOException {
    ObjectMapper json = new ObjectMapper();
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      List<String> arguments = new ArrayList<>();
      for (JsonNode argument : json.readTree(line).get("args")) {
        arguments.add(argument.asText());
      }
      answers.println(json.writeValueAsString(isolated(arguments)));
    }
    Runtime.getRuntime().halt(0);
  }

  private static Map<String, Object> isolated(List<String> arguments) {
    Properties properties = (Properties) System.getProperties().clone();
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    PrintStream out = System.out;
    PrintStream err = System.err;
    ByteArrayOutputStream printed = new ByteArrayOutputStream();
    ByteArrayOutputStream complained = new ByteArrayOutputStream();
    System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
    System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
    try {
      return run(arguments, printed, complained);
    } finally {
      System.setOut(out);
      System.setErr(err);
      System.setProperties(properties);
      Thread.currentThread().setContextClassLoader(loader);
    }
  }

  private static Map<String, Object> run(
      List<String> arguments, ByteArrayOutputStream printed, ByteArrayOutputStream complained) {
    List<String> main = new ArrayList<>(List.of(SUBMIT));
    main.addAll(arguments);
    try {
      // The class is not public, only its main method is.
      Method launcher = Class.forName("org.apache.spark.launcher.Main").getMethod("main", String[].class);
      launcher.setAccessible(true);
      launcher.invoke(null, (Object) main.toArray(new String[0]));
    } catch (InvocationTargetException e) {
      return refused(1, describe(e.getCause()));
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("no launcher", e);
    }
    String error = complained.toString(StandardCharsets.UTF_8);
    if (error.startsWith("Error: ")) {
      return refused(1, "launcher: " + error.substring("Error: ".length()).trim());
    }
    String text = printed.toString(StandardCharsets.UTF_8);
    List<String> command = Arrays.asList(text.substring(text.indexOf('\0') + 2).split("\0", -1));
    if (!command.contains(SUBMIT)) {
      throw new IllegalStateException("not a submission: " + command);
    }
    // The command ends with a NUL too, so the last part is empty.
    List<String> second = command.subList(command.indexOf(SUBMIT) + 1, command.size() - 1);
    try {
      new SparkSubmit().doSubmit(second.toArray(new String[0]));
    } catch (Throwable t) { // Scala declares no exceptions, so each may come.
      return t instanceof SparkUserAppException exit
          ? refused(exit.exitCode(), firstLine(complained))
          : refused(1, describe(t));
    }
    return refused(0, "");
  }

  private static Map<String, Object> refused(int exit, String error) {
    return Map.of("exit", exit, "error", error);
  }

  /** The first line of what was printed instead of an exception: the usage. */
  private static String firstLine(ByteArrayOutputStream complained) {
    String text = complained.toString(StandardCharsets.UTF_8).trim();
    int end = text.indexOf('\n');
    return end < 0 ? text : text.substring(0, end);
  }

  /** The messages of an exception and its causes, without stack traces. */
  private static String describe(Throwable t) {
    StringBuilder text = new StringBuilder();
    for (Throwable cause = t; cause != null; cause = cause.getCause()) {
      String message = cause.getClass().getSimpleName() + ": " + cause.getMessage();
      if (text.indexOf(message) < 0) {
        text.append(text.length() == 0 ? "" : " | ").append(message);
      }
    }
    return text.toString();
  }

  /** A remote file system without any file; Spark keeps the names of files that it does not find. */
  public static final class Remote extends FileSystem {
    private URI uri;

    @Override
    public void initialize(URI name, Configuration conf) throws IOException {
      super.initialize(name, conf);
      uri = URI.create(name.getScheme() + (name.getAuthority() == null ? ":///" : "://" + name.getAuthority()));
      setConf(conf);
    }

    @Override
    public URI getUri() {
      return uri;
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
      throw new FileNotFoundException(path.toString());
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
      throw new FileNotFoundException(path.toString());
    }

    @Override
    public FSDataInputStream open(Path path, int size) throws IOException {
      throw new FileNotFoundException(path.toString());
    }

    @Override
    public FSDataOutputStream create(
        Path path, FsPermission permission, boolean overwrite, int size, short replication, long block, Progressable progress)
        throws IOException {
      throw new IOException("read only");
    }

    @Override
    public FSDataOutputStream append(Path path, int size, Progressable progress) throws IOException {
      throw new IOException("read only");
    }

    @Override
    public boolean rename(Path from, Path to) {
      return false;
    }

    @Override
    public boolean delete(Path path, boolean recursive) {
      return false;
    }

    @Override
    public boolean mkdirs(Path path, FsPermission permission) {
      return false;
    }

    @Override
    public void setWorkingDirectory(Path path) {}

    @Override
    public Path getWorkingDirectory() {
      return new Path(uri.toString() + "/");
    }
  }
}
