module github.com/weir-dev/weir/e2e

go 1.26.0

require github.com/weir-dev/weir v0.0.0

replace github.com/weir-dev/weir => ../
