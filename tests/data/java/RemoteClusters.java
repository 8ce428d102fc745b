import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;

import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** What Java's own client of mirrored clusters finds. Each argument is a question, `bootstrap` or
 *  `bootstrap alias group`; a JSON list of answers on stdout. Run by test_java_client.py and test_topologies.py. */
public class RemoteClusters {
    static final Duration PATIENCE = Duration.ofSeconds(20);

    public static void main(String[] questions) throws Exception {
        StringBuilder out = new StringBuilder("ANSWERS[");
        for (String question : questions) {
            if (out.charAt(out.length() - 1) != '[') out.append(",");
            out.append(json(answer(question.split(" "))));
        }
        System.out.println(out.append("]"));
    }

    static Map<String, Object> answer(String[] question) throws Exception {
        Map<String, Object> target = new HashMap<>();
        target.put("bootstrap.servers", question[0]);
        Map<String, Object> answer = new LinkedHashMap<>();
        Map<String, Object> hops = new TreeMap<>();
        for (String alias : RemoteClusterUtils.upstreamClusters(target)) {
            hops.put(alias, RemoteClusterUtils.replicationHops(target, alias));
        }
        hops.put("nobody", RemoteClusterUtils.replicationHops(target, "nobody"));
        answer.put("hops", hops);
        answer.put("upstream", new TreeSet<>(RemoteClusterUtils.upstreamClusters(target)));
        answer.put("heartbeats", new TreeSet<>(RemoteClusterUtils.heartbeatTopics(target)));
        answer.put("checkpoints", new TreeSet<>(RemoteClusterUtils.checkpointTopics(target)));
        try (MirrorClient client = new MirrorClient(target)) {
            answer.put("remote", new TreeSet<>(client.remoteTopics()));
            Map<String, Object> by = new TreeMap<>();
            for (String alias : client.upstreamClusters()) by.put(alias, new TreeSet<>(client.remoteTopics(alias)));
            answer.put("remote_of", by);
        }
        if (question.length == 3) {
            String alias = question[1], group = question[2];
            answer.put("translated", places(RemoteClusterUtils.translateOffsets(target, alias, group, PATIENCE)));
            Map<String, Object> matching = new TreeMap<>();
            RemoteClusterUtils.translateOffsets(target, alias, Pattern.compile(Pattern.quote(group) + ".*"), PATIENCE)
                .forEach((one, offsets) -> matching.put(one, places(offsets)));
            answer.put("matching", matching);
        }
        return answer;
    }

    static Map<String, Object> places(Map<TopicPartition, OffsetAndMetadata> offsets) {
        Map<String, Object> places = new TreeMap<>();
        offsets.forEach((tp, at) -> places.put(tp.toString(), at.offset() + " " + at.metadata()));
        return places;
    }

    /** Names and numbers only: nothing here needs escaping. */
    static String json(Object value) {
        StringBuilder out = new StringBuilder();
        if (value instanceof Map<?, ?> map) {
            map.forEach((k, v) -> out.append(out.length() > 0 ? "," : "").append(json(k)).append(":").append(json(v)));
            return "{" + out + "}";
        }
        if (value instanceof Collection<?> many) {
            many.forEach(v -> out.append(out.length() > 0 ? "," : "").append(json(v)));
            return "[" + out + "]";
        }
        return value instanceof Number ? value.toString() : "\"" + value + "\"";
    }
}
