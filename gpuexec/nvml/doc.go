// Package nvml reads the health of NVIDIA devices for reports, metrics and the
// planner's health gate: utilisation, memory, power, temperature, slowed clocks,
// uncorrected memory errors and XID errors.
//
// Read watch.go first (what a reading is, and when a device is unfit), then
// driver.go (how readings are taken from NVIDIA's library). The library is loaded
// at run time through go-nvml, which needs cgo. The default binary is static and has
// no readings; it says so once and does everything else. `make build NVML=1` makes
// one that has them.
package nvml
