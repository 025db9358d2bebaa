module kubeon.io/catalogue/pause

go 1.24.0
