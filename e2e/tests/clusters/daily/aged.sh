# Runs on a host of the lab. Replaces every leaf certificate by one that is valid since 300 days and expires in 65 days,
# with the same key and the same other fields. Records the new content in kubeon's journal, as if kubeon had written it.
# Restarts the services that use a replaced certificate.
# usage: aged.sh FOLDER      FOLDER contains the authorities of the cluster, as ca-NAME.pem
set -eu
cd "$1"
begin=$(date -u -d '-300 days' +%Y%m%d%H%M%SZ)
end=$(date -u -d '+65 days +12 hours' +%Y%m%d%H%M%SZ)
cat > ca.conf <<'CONF'
[ca]
default_ca = cluster
[cluster]
database = issued
new_certs_dir = .
default_md = sha256
rand_serial = yes
unique_subject = no
copy_extensions = copyall
policy = any
[any]
commonName = supplied
organizationName = optional
CONF
: > issued

sum() { sha256sum "$1" | cut -d ' ' -f 1; }

for leaf in $(find /etc/kubernetes/pki -name '*.crt' ! -name '*ca.crt'); do
  ca=$(openssl x509 -noout -issuer -nameopt multiline -in "$leaf" | sed -n 's/.*commonName *= kubeon-\(.*\)-ca/ca-\1.pem/p')
  openssl x509 -x509toreq -copy_extensions copyall -in "$leaf" -signkey "${leaf%.crt}.key" -out request 2> /dev/null
  openssl ca -config ca.conf -batch -notext -preserveDN -cert "$ca" -keyfile "$ca" -in request \
    -startdate "$begin" -enddate "$end" -out aged 2> errors || { cat errors >&2; exit 1; }
  before=$(sum "$leaf")
  cat aged > "$leaf"
  sed -i "s/$before/$(sum aged)/" /var/lib/kubeon/journal/*.json
done

# The content with which a unit was started: a line for its unit file, and one for each file that it watches.
content() { # UNIT WATCHED…
  printf %s "$(sum "/etc/systemd/system/$1")"
  shift
  for path in "$@"; do
    if [ -L "$path" ]; then printf '\n%s link %s' "$path" "$(readlink "$path")"
    else printf '\n%s file %s' "$path" "$(sum "$path")"; fi
  done
}

services=
for record in /var/lib/kubeon/units/*.json; do
  unit=$(basename "$record" .json)
  watched=$(grep -ho "\"name\":\"$unit\",\"sha256\":\"[0-9a-f]*\",\"watches\":\[[^]]*" /var/lib/kubeon/journal/*.json |
    sed 's/.*\[//' | tr -d '"' | tr , ' ')
  # shellcheck disable=SC2086
  content "$unit" $watched > content
  started=$(sed 's/.*"started":"\([0-9a-f]*\)".*/\1/' "$record")
  [ "$started" != "$(sum content)" ] || continue
  sed -i "s/$started/$(sum content)/" "$record"
  services="$services $unit"
done
# Restarts one service after the other: an API server that stops while etcd is down waits until its stop timeout.
for unit in $services; do systemctl restart "$unit"; done
rm -rf "$1"
printf '%s\n' $services
