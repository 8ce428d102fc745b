import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import org.yaml.snakeyaml.Yaml;

/** Prints a YAML file as JSON, as SnakeYAML reads it. */
public class YamlToJson {
    public static void main(String[] arguments) throws Exception {
        Object read = new Yaml().load(Files.readString(Path.of(arguments[0])));
        System.out.println(new ObjectMapper().writeValueAsString(read));
    }
}
