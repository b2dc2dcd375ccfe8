// Package simup tests the live stack on simulated devices: the times of a calibration,
// and the refusal of a speed at which the bus would be measured instead.
package simup
