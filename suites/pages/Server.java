import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.TreeMap;

/**
 * Orders of a wholesale company in memory, as a server without network: warehouses with stock and
 * customers, five kinds of transactions in the mix of TPC-C (and SPECjbb2005), one thread. Objects
 * of many sizes that live for a while, found through hash maps and trees: a heap far larger than
 * the reach of a TLB with small pages.
 *
 * Arguments: WAREHOUSES TRANSACTIONS. The same numbers print the same text, but for the rate.
 */
public final class Server {
    private static final int CUSTOMERS = 20000, ITEMS = 50000, KEPT = 15000, LINES = 10;

    private static final class Item {
        final String name;
        final int cents;
        int stock;
        long sold;

        Item(String name, int cents, int stock) {
            this.name = name;
            this.cents = cents;
            this.stock = stock;
        }
    }

    private static final class Customer {
        final String name;
        long balance;
        long paid;
        Order last;

        Customer(String name) {
            this.name = name;
        }
    }

    private static final class Line {
        final Item item;
        final int quantity;

        Line(Item item, int quantity) {
            this.item = item;
            this.quantity = quantity;
        }
    }

    private static final class Order {
        final long id;
        final Customer customer;
        final ArrayList<Line> lines = new ArrayList<>(LINES);
        boolean delivered;

        Order(long id, Customer customer) {
            this.id = id;
            this.customer = customer;
        }

        long total() {
            long sum = 0;
            for (Line line : lines) {
                sum += (long) line.quantity * line.item.cents;
            }
            return sum;
        }
    }

    private static final class Warehouse {
        final HashMap<Integer, Item> items = new HashMap<>();
        final HashMap<String, Customer> customers = new HashMap<>();
        final TreeMap<Long, Order> orders = new TreeMap<>();
        final ArrayDeque<Order> open = new ArrayDeque<>();
        long nextOrder, taken, low;

        Warehouse(int number) {
            for (int i = 0; i < ITEMS; i++) {
                items.put(i, new Item("item " + number + "." + i, 100 + below(9900), 50 + below(50)));
            }
            for (int i = 0; i < CUSTOMERS; i++) {
                Customer customer = new Customer("customer " + i);
                customers.put(customer.name, customer);
            }
        }

        Customer someCustomer() {
            return customers.get("customer " + below(CUSTOMERS));
        }

        void order() {
            Order order = new Order(nextOrder++, someCustomer());
            for (int i = 0; i < LINES; i++) {
                Item item = items.get(below(ITEMS));
                int quantity = 1 + below(5);
                if (item.stock < quantity + 10) {
                    item.stock += 91;
                }
                item.stock -= quantity;
                item.sold += quantity;
                order.lines.add(new Line(item, quantity));
            }
            order.customer.last = order;
            orders.put(order.id, order);
            open.add(order);
            if (orders.size() > KEPT) {
                orders.pollFirstEntry();
            }
        }

        void payment() {
            Customer customer = someCustomer();
            int cents = 1 + below(500000);
            customer.paid += cents;
            customer.balance -= cents;
            taken += cents;
        }

        void status() {
            Order last = someCustomer().last;
            if (last != null) {
                low += last.total() & 1;
            }
        }

        void deliver() {
            for (int i = 0; i < 10 && !open.isEmpty(); i++) {
                Order order = open.poll();
                order.delivered = true;
                order.customer.balance += order.total();
            }
        }

        void level() {
            for (Order order : orders.tailMap(nextOrder - 20).values()) {
                for (Line line : order.lines) {
                    low += line.item.stock < 15 ? 1 : 0;
                }
            }
        }
    }

    private static long state = 88172645463325252L;

    private static int below(int limit) {
        state ^= state << 13;
        state ^= state >>> 7;
        state ^= state << 17;
        return (int) ((state >>> 33) % limit);
    }

    public static void main(String[] args) {
        int count = Integer.parseInt(args[0]);
        long transactions = Long.parseLong(args[1]);
        Warehouse[] warehouses = new Warehouse[count];
        for (int i = 0; i < count; i++) {
            warehouses[i] = new Warehouse(i);
        }
        long start = System.nanoTime();
        for (long i = 0; i < transactions; i++) {
            Warehouse warehouse = warehouses[below(count)];
            int kind = below(100);
            if (kind < 45) {
                warehouse.order();
            } else if (kind < 88) {
                warehouse.payment();
            } else if (kind < 92) {
                warehouse.status();
            } else if (kind < 96) {
                warehouse.deliver();
            } else {
                warehouse.level();
            }
        }
        double seconds = (System.nanoTime() - start) * 1e-9;
        long orders = 0, taken = 0, low = 0, check = 0;
        for (Warehouse warehouse : warehouses) {
            orders += warehouse.nextOrder;
            taken += warehouse.taken;
            low += warehouse.low;
            for (Order order : warehouse.orders.values()) {
                check = check * 31 + order.total() + (order.delivered ? 1 : 0);
            }
        }
        System.out.println("warehouses " + count + " orders " + orders + " taken " + taken);
        System.out.println("low " + low + " check " + check);
        System.out.printf("rate %.0f transactions/s%n", transactions / seconds);
    }
}
