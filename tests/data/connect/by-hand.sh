#!/bin/sh
# The three connectors of a source cluster by curl and jq, as people script it: by-hand.sh ACTION URL FOLDER CLUSTER
# Nothing is waited for, and a redeploy is an undeploy and a deploy with nothing between them.
action=$1 url=$2 folder=$3 cluster=$4

state() { curl -s "$url/connectors/$1/status" | jq -r .connector.state; }

deploy() {
    if [ "$(state "$1")" = RUNNING ]; then
        echo "$1 was there"
    else
        curl -s -f -o /dev/null -X PUT -H "Content-Type: application/json" --data "@$folder/$1.json" \
            "$url/connectors/$1/config" && echo "$1 deployed" || echo "$1 refused"
    fi
}

undeploy() { curl -s -f -X DELETE "$url/connectors/$1" && echo "$1 deleted" || echo "$1 was not there"; }

for kind in cpc hbc msc; do
    name="mm2-$kind-$cluster"
    case $action in
        deploy) deploy "$name" ;;
        undeploy) undeploy "$name" ;;
        status) echo "$name $(state "$name")" ;;
    esac
done
