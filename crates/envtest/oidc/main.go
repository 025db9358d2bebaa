// A provider of OpenID Connect for tests: the certified library of Zitadel with the users and the login page of its example.
// Arguments: ADDRESS CERTIFICATE KEY CLIENT SECRET REDIRECT. Its user is test-user@HOST with the password verysecure.
package main

import (
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
)

func main() {
	if len(os.Args) != 7 {
		log.Fatal("arguments: ADDRESS CERTIFICATE KEY CLIENT SECRET REDIRECT")
	}
	address, certificate, key := os.Args[1], os.Args[2], os.Args[3]
	issuer := "https://" + address
	storage.RegisterClients(storage.WebClient(os.Args[4], os.Args[5], os.Args[6]))
	store := storage.NewStorage(storage.NewUserStore(issuer))
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	router := exampleop.SetupServer(issuer, store, logger, false)
	log.Fatal(http.ListenAndServeTLS(address, certificate, key, router))
}
