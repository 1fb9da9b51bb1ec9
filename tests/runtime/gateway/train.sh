#!/bin/sh
# Linear regression in shell, curl and awk: standardised measurements of a patient -> standardised progression.
set -eu
api() { curl --silent --show-error --fail "$@"; }
field() { sed "s/.*\"$1\": \([0-9]*\).*/\1/" task.json; }

api -X POST -d '{"params": {"w": {"shape": [10]}, "b": {"shape": [1]}}, "opt": {"name": "SGD", "lr": 0.05}}' \
    "$REGATTA_GATEWAY/v1/params" > /dev/null
while true; do
    status=$(curl --silent --output task.json --write-out '%{http_code}' "$REGATTA_GATEWAY/v1/task")
    case $status in
        200) ;;
        204) sleep 1; continue ;;
        410) break ;;
        *) cat task.json; exit 75 ;;
    esac
    api "$REGATTA_GATEWAY/v1/records/$(field task)?format=csv" > records.csv
    api "$REGATTA_GATEWAY/v1/params/w?dtype=csv" > w.csv
    api "$REGATTA_GATEWAY/v1/params/b?dtype=csv" > b.csv
    awk -F, -v stats="$STATS" '
        FILENAME == stats { mean[FNR] = $1; scale[FNR] = $2; next }
        FILENAME == "w.csv" { w[FNR] = $1; next }
        FILENAME == "b.csv" { b = $1; next }
        { guess = b
          for (i = 1; i <= 10; i++) { x[i] = ($(i + 1) - mean[i + 1]) / scale[i + 1]; guess += w[i] * x[i] }
          error = guess - ($1 - mean[1]) / scale[1]
          cost += error * error
          for (i = 1; i <= 10; i++) g[i] += 2 * error * x[i]
          gb += 2 * error }
        END { for (i = 1; i <= 10; i++) print g[i] / FNR > "gw.csv"
              print gb / FNR > "gb.csv"
              print cost / FNR > "cost" }
    ' "$STATS" w.csv b.csv records.csv
    api -X POST --data-binary @gb.csv "$REGATTA_GATEWAY/v1/params/b?op=push&dtype=csv" > /dev/null
    api -X POST --data-binary @gw.csv "$REGATTA_GATEWAY/v1/params/w?op=push_pull&dtype=csv&n=$(field records)" > /dev/null
    api -X POST -d "{\"epoch\": $(field epoch), \"metrics\": {\"cost\": $(cat cost)}}" \
        "$REGATTA_GATEWAY/v1/task/$(field task)/done" > /dev/null
done
api -X POST "$REGATTA_GATEWAY/v1/save?path=model.npz"
