// An object store with the S3 protocol over a folder, for tests: rclone with its local backend and nothing else.
// Arguments: those of rclone.
package main

import (
	_ "github.com/rclone/rclone/backend/local"
	"github.com/rclone/rclone/cmd"
	_ "github.com/rclone/rclone/cmd/serve/s3"
)

func main() { cmd.Main() }
