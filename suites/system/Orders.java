import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/** Orders parsed into objects, grouped and sorted: allocation, collections, strings. */
public final class Orders {
    private static final class Order {
        final long id;
        final String city;
        final String product;
        final int quantity;
        final int cents;
        final String[] words;

        Order(String line) {
            String[] fields = line.split(",");
            id = Long.parseLong(fields[0]);
            city = fields[3];
            product = fields[4];
            quantity = Integer.parseInt(fields[5]);
            cents = Integer.parseInt(fields[6]);
            words = fields[7].split(" ");
        }
    }

    private static String report(List<String> lines) {
        List<Order> orders = new ArrayList<>();
        for (String line : lines) {
            orders.add(new Order(line));
        }
        TreeMap<String, Long> cities = new TreeMap<>();
        Map<String, Integer> words = new HashMap<>();
        for (Order order : orders) {
            cities.merge(order.city, (long) order.quantity * order.cents, Long::sum);
            for (String word : order.words) {
                words.merge(word, 1, Integer::sum);
            }
        }
        orders.sort(Comparator.comparing((Order o) -> o.product).thenComparingLong(o -> o.id));
        StringBuilder text = new StringBuilder();
        int check = 0;
        for (Order order : orders) {
            text.setLength(0);
            text.append(order.product).append(' ').append(order.id).append(' ');
            for (String word : order.words) {
                text.append(word.toUpperCase()).append(words.get(word));
            }
            check = check * 31 + text.toString().hashCode(); // defined by the language
        }
        return "orders " + orders.size() + " cities " + cities.size() + " words " + words.size()
                + "\nfirst " + cities.firstEntry() + " check " + check;
    }

    public static void main(String[] args) throws IOException {
        int rounds = Integer.parseInt(args[0]);
        List<String> lines = Files.readAllLines(Paths.get(args[1]), StandardCharsets.US_ASCII);
        Set<String> found = new HashSet<>();
        for (int round = 0; round < rounds; round++) {
            found.add(report(lines));
        }
        System.out.println("rounds " + rounds);
        for (String text : found) {
            System.out.println(text);
        }
    }
}
