module devcluster/pause

go 1.24
