#!/bin/sh
# The three connectors of a source cluster by curl and jq, as people script it: by-hand.sh ACTION URL FOLDER CLUSTER
# ACTION: deploy, undeploy, redeploy or status. The calls and their order are those of a script of the field: checkpoints
# first, then heartbeats, then the copying; each is looked at before it is PUT; a redeploy DELETEs all three and deploys
# them at once. Nothing is waited for.
action=$1 url=$2 folder=$3 cluster=$4
names="mm2-cpc-$cluster mm2-hbc-$cluster mm2-msc-$cluster"

state() { curl -s "$url/connectors/$1/status" | jq -r .connector.state; }

require_files() {
    missing=
    for name in $names; do
        [ -f "$folder/$name.json" ] || { echo "$name.json is missing"; missing=yes; }
    done
    [ -z "$missing" ] || exit 1
}

deploy() {
    for name in $names; do
        if [ "$(state "$name")" = RUNNING ]; then
            echo "$name was there"
        else
            curl -s -f -o /dev/null -X PUT -H "Content-Type: application/json" --data "@$folder/$name.json" \
                "$url/connectors/$name/config" && echo "$name deployed" || echo "$name refused"
        fi
    done
}

undeploy() {
    for name in $names; do
        curl -s -f -X DELETE "$url/connectors/$name" && echo "$name deleted" || echo "$name was not there"
    done
}

case $action in
    deploy) require_files; deploy ;;
    undeploy) undeploy ;;
    redeploy) require_files; undeploy; deploy ;;
    status) for name in $names; do echo "$name $(state "$name")"; done ;;
    *) echo "usage: by-hand.sh deploy|undeploy|redeploy|status URL FOLDER CLUSTER"; exit 2 ;;
esac
