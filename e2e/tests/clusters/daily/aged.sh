# Runs on a host of the lab: gives every leaf there the dates of one that was issued 300 days ago and ends in 65, and has
# the journal say that kubeon wrote it then. All else in the leaf stays, its key too.
# usage: aged.sh FOLDER      with the authorities of the cluster, as ca-NAME.pem
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
    -startdate "$begin" -enddate "$end" -out aged 2> said || { cat said >&2; exit 1; }
  before=$(sum "$leaf")
  cat aged > "$leaf"
  sed -i "s/$before/$(sum aged)/" /var/lib/kubeon/journal/*.json
done
rm -rf "$1"
