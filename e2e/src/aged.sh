# Runs on a host of the lab, in a folder with the authorities of the cluster, as ca-NAME.pem: gives every leaf there other
# dates, and has the journal say that kubeon wrote it then. All else in the leaf stays, its key too.
# arguments: BEGIN END [FILE]      both as `date -d` reads them; with FILE, which has a certificate and its key, only that one
set -eu
begin=$(date -u -d "$1" +%Y%m%d%H%M%SZ)
end=$(date -u -d "$2" +%Y%m%d%H%M%SZ)
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

# Writes the file `aged`: the certificate in the first file, whose key is in the second one, with the other dates.
issue() {
  ca=$(openssl x509 -noout -issuer -nameopt multiline -in "$1" | sed -n 's/.*commonName *= kubeon-\(.*\)-ca/ca-\1.pem/p')
  openssl x509 -x509toreq -copy_extensions copyall -in "$1" -signkey "$2" -out request 2> /dev/null
  openssl ca -config ca.conf -batch -notext -preserveDN -cert "$ca" -keyfile "$ca" -in request \
    -startdate "$begin" -enddate "$end" -out aged 2> said || { cat said >&2; exit 1; }
}

if [ $# -gt 2 ]; then
  file=$(readlink -f "$3")
  issue "$file" "$file"
  sed -n '/PRIVATE KEY/,/PRIVATE KEY/p' "$file" >> aged
  cat aged > "$file"
else
  for leaf in $(find /etc/kubernetes/pki -name '*.crt' ! -name '*ca.crt'); do
    issue "$leaf" "${leaf%.crt}.key"
    before=$(sum "$leaf")
    cat aged > "$leaf"
    sed -i "s/$before/$(sum aged)/" /var/lib/kubeon/journal/*.json
  done
fi
folder=$PWD
cd /
rm -rf "$folder"
