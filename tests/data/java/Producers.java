import java.util.Properties;
import java.util.Random;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Records as Java's own producer packs them, by several codecs in one JVM. Arguments: `bootstrap count bytes`, then
 *  `topic=codec` for each topic. Run by test_batch_real.py and test_content.py. */
public class Producers {
    public static void main(String[] words) throws Exception {
        int count = Integer.parseInt(words[1]);
        Random random = new Random(4);
        for (int at = 3; at < words.length; at++) {
            String[] topic = words[at].split("=");
            Properties settings = new Properties();
            settings.put("bootstrap.servers", words[0]);
            settings.put("compression.type", topic[1]);
            settings.put("linger.ms", "50");
            try (KafkaProducer<byte[], byte[]> producer =
                     new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
                for (int n = 0; n < count; n++) {
                    byte[] value = new byte[Integer.parseInt(words[2])];
                    for (int i = 0; i < value.length; i++) value[i] = (byte) ('A' + random.nextInt(26));
                    producer.send(new ProducerRecord<>(topic[0], value));
                }
            }
        }
    }
}
