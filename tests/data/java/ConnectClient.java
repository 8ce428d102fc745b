// One connector's life by a client library of others (org.sourcelab:kafka-connect-client, which AKHQ uses too).
//   ConnectClient URL NAME KEY=VALUE…
// Prints a line for each call: what it came to, without what depends on the place.

import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import org.sourcelab.kafka.connect.apiclient.Configuration;
import org.sourcelab.kafka.connect.apiclient.KafkaConnectClient;
import org.sourcelab.kafka.connect.apiclient.request.dto.ConnectorPlugin;
import org.sourcelab.kafka.connect.apiclient.request.dto.ConnectorPluginConfigDefinition;
import org.sourcelab.kafka.connect.apiclient.request.dto.ConnectorPluginConfigValidationResults;
import org.sourcelab.kafka.connect.apiclient.request.dto.ConnectorStatus;
import org.sourcelab.kafka.connect.apiclient.request.dto.NewConnectorDefinition;
import org.sourcelab.kafka.connect.apiclient.request.post.PostConnectorRestart;

public class ConnectClient {
    private static final String PLUGIN = "MirrorSourceConnector";

    private final KafkaConnectClient client;
    private final String name;
    private final Map<String, String> config;

    private ConnectClient(String url, String name, Map<String, String> config) {
        this.client = new KafkaConnectClient(new Configuration(url));
        this.name = name;
        this.config = config;
    }

    public static void main(String[] arguments) {
        Map<String, String> config = new LinkedHashMap<>();
        for (int i = 2; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            config.put(pair[0], pair[1]);
        }
        new ConnectClient(arguments[0], arguments[1], config).talk();
    }

    private void talk() {
        say("version", () -> client.getConnectServerVersion().getVersion());
        say("plugins", () -> client.getConnectorPlugins().stream().filter(one -> one.getType().equals("source"))
            .map(ConnectorPlugin::getClassName).sorted().collect(Collectors.joining(" ")));
        say("validate", () -> validated(Map.of()));
        say("validate what is wrong", () -> validated(Map.of("tasks.max", "many")));
        say("add", () -> client.addConnector(new NewConnectorDefinition(name, config)).getName());
        say("add again", () -> client.addConnector(new NewConnectorDefinition(name, config)).getName());
        say("running", () -> await("RUNNING"));
        say("of all, its status", () ->
            states(client.getConnectorsWithExpandedStatus().getStatusForConnector(name)));
        say("of all, its definition", () ->
            new TreeMap<>(client.getConnectorsWithExpandedInfo().getDefinitionForConnector(name).getConfig()).keySet());
        say("of all, both", () ->
            states(client.getConnectorsWithAllExpandedMetadata().getStatusForConnector(name)));
        say("itself", () -> client.getConnector(name).getType() + " " + client.getConnector(name).getTasks().size());
        say("its config", () -> client.getConnectorConfig(name).equals(with(Map.of("name", name))));
        say("its topics", () -> awaitTopics());
        say("its tasks", () -> client.getConnectorTasks(name).size());
        say("a task", () -> client.getConnectorTaskStatus(name, 0).getState());
        say("no such task", () -> client.getConnectorTaskStatus(name, 9).getState());
        say("pause", () -> client.pauseConnector(name) + " " + await("PAUSED"));
        say("resume", () -> client.resumeConnector(name) + " " + await("RUNNING"));
        say("restart", () -> client.restartConnector(name) + " " + await("RUNNING"));
        say("restart with tasks", () -> client.restartConnector(
            new PostConnectorRestart(name).withIncludeTasks(true).withOnlyFailed(false)) + " " + await("RUNNING"));
        say("restart a task", () -> client.restartConnectorTask(name, 0) + " " + await("RUNNING"));
        say("update", () -> client.updateConnectorConfig(name, with(Map.of("refresh.topics.interval.seconds", "20")))
            .getConfig().get("refresh.topics.interval.seconds"));
        say("forget its topics", () -> client.resetConnectorTopics(name));
        say("no such connector", () -> client.getConnector("nobody"));
        say("delete", () -> client.deleteConnector(name));
        say("delete again", () -> client.deleteConnector(name));
    }

    private Map<String, String> with(Map<String, String> more) {
        Map<String, String> all = new LinkedHashMap<>(config);
        all.putAll(more);
        return all;
    }

    private String validated(Map<String, String> more) {
        Map<String, String> all = with(more);
        all.put("name", name);
        ConnectorPluginConfigValidationResults found =
            client.validateConnectorPluginConfig(new ConnectorPluginConfigDefinition(PLUGIN, all));
        return found.getName() + " " + found.getErrorCount();
    }

    private String states(ConnectorStatus status) {
        Collection<String> tasks = status.getTasks().stream().map(one -> one.getState()).collect(Collectors.toList());
        return status.getConnector().get("state") + " " + tasks;
    }

    /** The connector and all of its tasks; a worker may not know of any yet. */
    private String await(String state) {
        String found = "";
        for (int i = 0; i < 600; i++) {
            try {
                ConnectorStatus status = client.getConnectorStatus(name);
                found = states(status);
                if (found.startsWith(state) && !status.getTasks().isEmpty()
                    && status.getTasks().stream().allMatch(one -> one.getState().equals(state))) {
                    return found;
                }
            } catch (RuntimeException error) {
                found = outcome(error);
            }
            sleep();
        }
        return "still " + found;
    }

    private Object awaitTopics() {
        for (int i = 0; i < 300 && client.getConnectorTopics(name).getTopics().isEmpty(); i++) {
            sleep();
        }
        return client.getConnectorTopics(name).getTopics();
    }

    private static void say(String call, Callable<Object> answer) {
        String found = "";
        for (int i = 0; i < 100; i++) {
            try {
                found = String.valueOf(answer.call());
            } catch (Exception error) {
                found = outcome(error);
            }
            if (!found.contains("rebalance")) { // a real worker asks for patience whenever a connector came or went
                break;
            }
            sleep();
        }
        System.out.println(call + ": " + found);
    }

    private static void sleep() {
        try {
            Thread.sleep(100);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String outcome(Exception error) {
        return error.getClass().getSimpleName() + " " + error.getMessage();
    }
}
