import java.io.FileInputStream;
import java.io.InputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;

import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;

/** What MM2's own classes make of mm2.properties files: one JSON document on stdout. Run by test_config_against_mm2.py. */
public class Effective {
    static final String PACKAGE = "org.apache.kafka.connect.mirror.";
    static final String[] CONNECTORS = {"Source", "Checkpoint", "Heartbeat"};

    public static void main(String[] files) throws Exception {
        Map<String, Object> read = new LinkedHashMap<>();
        for (String file : files) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.putAll(file(file));
            } catch (Exception problem) {
                Throwable cause = problem;
                while (cause.getCause() != null) cause = cause.getCause();
                answer.put("error", cause.toString());
            }
            read.put(file, answer);
        }
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("names", names());
        document.put("files", read);
        System.out.println(json(document));
    }

    static Map<String, Object> names() throws Exception {
        Map<String, Object> names = new LinkedHashMap<>();
        names.put("consumer", ConsumerConfig.configNames());
        names.put("producer", ProducerConfig.configNames());
        names.put("admin", AdminClientConfig.configNames());
        names.put("client", definition("MirrorClientConfig", "CLIENT_CONFIG_DEF").names());
        for (String kind : CONNECTORS)
            names.put(kind, definition("Mirror" + kind + "Config", "CONNECTOR_CONFIG_DEF").names());
        Map<String, String> worker = new HashMap<>();
        for (String key : new String[] {"group.id", "offset.storage.topic", "config.storage.topic", "status.storage.topic"})
            worker.put(key, "x");
        worker.put("bootstrap.servers", "x:1");
        worker.put("key.converter", "org.apache.kafka.connect.converters.ByteArrayConverter");
        worker.put("value.converter", "org.apache.kafka.connect.converters.ByteArrayConverter");
        Object config = Class.forName("org.apache.kafka.connect.runtime.distributed.DistributedConfig")
            .getConstructor(Map.class).newInstance(worker);
        names.put("worker", ((AbstractConfig) config).values().keySet());
        return names;
    }

    static ConfigDef definition(String type, String name) throws Exception {
        Field field = Class.forName(PACKAGE + type).getDeclaredField(name);
        field.setAccessible(true);
        return (ConfigDef) field.get(null);
    }

    static Map<String, Object> file(String path) throws Exception {
        Properties properties = new Properties();
        try (InputStream in = new FileInputStream(path)) {
            properties.load(in);
        }
        Map<String, String> strings = new HashMap<>();
        properties.forEach((key, value) -> strings.put((String) key, (String) value));
        // Nothing reads it but the search for plugins, which takes seconds a file otherwise.
        strings.put("plugin.discovery", "service_load");
        Object config = Class.forName(PACKAGE + "MirrorMakerConfig").getConstructor(Map.class).newInstance(strings);
        Map<String, Object> flows = new TreeMap<>();
        for (Object pair : (Collection<?>) call(config, "clusterPairs"))
            flows.put(pair.toString(), flow(config, pair));
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("clusters", new TreeSet<>((Collection<?>) call(config, "clusters")));
        answer.put("flows", flows);
        return answer;
    }

    static Map<String, Object> flow(Object config, Object pair) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("worker", call(config, "workerConfig", pair));
        for (String kind : CONNECTORS) {
            Class<?> connector = Class.forName(PACKAGE + "Mirror" + kind + "Connector");
            Map<?, ?> base = (Map<?, ?>) call(config, "connectorBaseConfig", pair, connector);
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("base", new HashMap<>(base));
            try {
                Object typed = Class.forName(PACKAGE + "Mirror" + kind + "Config").getConstructor(Map.class).newInstance(base);
                one.put("values", ((AbstractConfig) typed).values());
                one.put("intervals", intervals(typed));
                if (kind.equals("Source")) {
                    one.put("consumer", call(typed, "sourceConsumerConfig", "replication-consumer"));
                    one.put("policy", call(typed, "replicationPolicy").getClass().getName());
                    one.put("offset-syncs", call(typed, "offsetSyncsTopic"));
                }
            } catch (Exception problem) {
                Throwable cause = problem;
                while (cause.getCause() != null) cause = cause.getCause();
                one.put("error", cause.toString());
            }
            answer.put(kind, one);
        }
        return answer;
    }

    static Map<String, Object> intervals(Object typed) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Method method : typed.getClass().getDeclaredMethods()) {
            if (method.getReturnType() == Duration.class && method.getParameterCount() == 0) {
                method.setAccessible(true);
                found.put(method.getName(), ((Duration) method.invoke(typed)).toMillis());
            }
        }
        return found;
    }

    /** A method of any visibility, of the class or of one that it extends. */
    static Object call(Object on, String name, Object... arguments) throws Exception {
        for (Class<?> type = on.getClass(); type != null; type = type.getSuperclass()) {
            for (Method method : type.getDeclaredMethods()) {
                if (method.getName().equals(name) && takes(method, arguments)) {
                    method.setAccessible(true);
                    return method.invoke(on, arguments);
                }
            }
        }
        throw new NoSuchMethodException(on.getClass() + "." + name);
    }

    static boolean takes(Method method, Object... arguments) {
        Class<?>[] types = method.getParameterTypes();
        if (types.length != arguments.length) return false;
        for (int i = 0; i < types.length; i++)
            if (!types[i].isInstance(arguments[i])) return false;
        return true;
    }

    static String json(Object value) {
        if (value == null) return "null";
        if (value instanceof Map) {
            StringBuilder out = new StringBuilder("{");
            ((Map<?, ?>) value).forEach((k, v) -> {
                if (out.length() > 1) out.append(",");
                out.append(json(String.valueOf(k))).append(":").append(json(v));
            });
            return out.append("}").toString();
        }
        if (value instanceof Collection) {
            StringBuilder out = new StringBuilder("[");
            ((Collection<?>) value).forEach(v -> {
                if (out.length() > 1) out.append(",");
                out.append(json(v));
            });
            return out.append("]").toString();
        }
        if (value instanceof Boolean || value instanceof Number) return value.toString();
        if (value instanceof Password) return json(((Password) value).value());
        if (value instanceof Class) return json(((Class<?>) value).getName());
        StringBuilder out = new StringBuilder("\"");
        for (char c : value.toString().toCharArray()) {
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else if (c < 32 || c > 126) out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.append("\"").toString();
    }
}
