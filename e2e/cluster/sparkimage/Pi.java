import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;

/** Estimates pi with the argument's number of tasks, each of which runs on an executor. */
public final class Pi {
  public static void main(String[] arguments) {
    int tasks = Integer.parseInt(arguments[0]);
    int points = 100_000;
    List<Integer> seeds = new ArrayList<>();
    for (int seed = 0; seed < tasks; seed++) {
      seeds.add(seed);
    }
    try (JavaSparkContext spark = new JavaSparkContext(new SparkConf())) {
      long inside =
          spark.parallelize(seeds, tasks).map(seed -> inside(seed, points)).reduce(Long::sum);
      System.out.println("Pi is roughly " + 4.0 * inside / points / tasks);
    }
  }

  private static long inside(int seed, int points) {
    Random random = new Random(seed);
    long inside = 0;
    for (int i = 0; i < points; i++) {
      double x = random.nextDouble();
      double y = random.nextDouble();
      if (x * x + y * y <= 1) {
        inside++;
      }
    }
    return inside;
  }
}
