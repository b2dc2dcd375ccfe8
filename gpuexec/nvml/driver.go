//go:build cgo && linux && nvml

package nvml

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/weir-dev/weir/schemas"
)

// Open loads the driver's library. It is ErrNoDriver on a host without one.
func Open() (Driver, error) { return open(nvml.New()) }

// driver reads through go-nvml.
type driver struct {
	lib     nvml.Interface
	devices []nvml.Device
	events  nvml.EventSet // nil when the driver offers none
	xid     map[string]uint64
}

func open(lib nvml.Interface) (Driver, error) {
	switch ret := lib.Init(); {
	case errors.Is(ret, nvml.ERROR_LIBRARY_NOT_FOUND), errors.Is(ret, nvml.ERROR_DRIVER_NOT_LOADED):
		return nil, fmt.Errorf("%w: %s", ErrNoDriver, lib.ErrorString(ret))
	case ret != nvml.SUCCESS:
		return nil, fmt.Errorf("nvml: init: %s", lib.ErrorString(ret))
	}
	d := &driver{lib: lib, xid: map[string]uint64{}}
	n, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, errors.Join(fmt.Errorf("nvml: counting devices: %s", lib.ErrorString(ret)), d.Close())
	}
	if set, ret := lib.EventSetCreate(); ret == nvml.SUCCESS {
		d.events = set
	}
	for i := range n {
		dev, ret := lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return nil, errors.Join(fmt.Errorf("nvml: device %d: %s", i, lib.ErrorString(ret)), d.Close())
		}
		d.devices = append(d.devices, dev)
		if d.events == nil {
			continue
		}
		// A device that tells no XID errors is read all the same.
		if types, ret := dev.GetSupportedEventTypes(); ret == nvml.SUCCESS && types&nvml.EventTypeXidCriticalError != 0 {
			_ = dev.RegisterEvents(nvml.EventTypeXidCriticalError, d.events)
		}
	}
	return d, nil
}

// Read returns the devices as they are now. What a device does not offer stays zero;
// one that is lost is left out.
func (d *driver) Read() ([]schemas.GPU, error) {
	d.drain()
	out := make([]schemas.GPU, 0, len(d.devices))
	for _, dev := range d.devices {
		id, ret := dev.GetUUID()
		if errors.Is(ret, nvml.ERROR_GPU_IS_LOST) {
			continue
		}
		if ret != nvml.SUCCESS {
			return out, fmt.Errorf("nvml: reading a device: %s", d.lib.ErrorString(ret))
		}
		g := schemas.GPU{UUID: id, XID: d.xid[id]}
		delete(d.xid, id)
		read(dev, &g)
		out = append(out, g)
	}
	return out, nil
}

func read(dev nvml.Device, g *schemas.GPU) {
	if name, ret := dev.GetName(); ret == nvml.SUCCESS {
		g.Name = name
	}
	if u, ret := dev.GetUtilizationRates(); ret == nvml.SUCCESS {
		g.Util = float64(u.Gpu) / 100
	}
	if m, ret := dev.GetMemoryInfo(); ret == nvml.SUCCESS {
		g.MemUsed, g.MemTotal = int64(m.Used), int64(m.Total)
	}
	if p, ret := dev.GetPowerUsage(); ret == nvml.SUCCESS {
		g.PowerW = float64(p) / 1000 // milliwatts
	}
	if t, ret := dev.GetTemperature(nvml.TEMPERATURE_GPU); ret == nvml.SUCCESS {
		g.TempC = int(t)
	}
	if bits, ret := dev.GetCurrentClocksEventReasons(); ret == nvml.SUCCESS {
		g.Slowed = slowed(bits)
	}
	if n, ret := dev.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); ret == nvml.SUCCESS {
		g.ECC = n
	}
}

// slowed names the reasons for which clocks are low, but for idleness and settings.
func slowed(bits uint64) (out []string) {
	for _, r := range [...]struct {
		bit  uint64
		name string
	}{
		{nvml.ClocksEventReasonSwPowerCap, "power_cap"},
		{nvml.ClocksThrottleReasonHwSlowdown, "hw_slowdown"},
		{nvml.ClocksEventReasonSwThermalSlowdown, "thermal"},
		{nvml.ClocksThrottleReasonHwThermalSlowdown, "hw_thermal"},
		{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "power_brake"},
	} {
		if bits&r.bit != 0 {
			out = append(out, r.name)
		}
	}
	return out
}

// maxEvents bounds what one reading takes from the driver's queue.
const maxEvents = 256

// drain takes the XID errors that were told since the last reading, without waiting.
func (d *driver) drain() {
	if d.events == nil {
		return
	}
	for range maxEvents {
		e, ret := d.events.Wait(0)
		if ret != nvml.SUCCESS {
			return
		}
		if e.EventType&nvml.EventTypeXidCriticalError == 0 || e.Device == nil {
			continue
		}
		if id, ret := e.Device.GetUUID(); ret == nvml.SUCCESS {
			d.worse(id, e.EventData)
		}
	}
}

// worse keeps the gravest of the errors between two readings.
func (d *driver) worse(id string, xid uint64) {
	if old := d.xid[id]; old == 0 || fatal[old] == "" {
		d.xid[id] = xid
	}
}

// Close frees the library.
func (d *driver) Close() error {
	if d.events != nil {
		_ = d.events.Free() // the library goes next
	}
	if ret := d.lib.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("nvml: shutdown: %s", d.lib.ErrorString(ret))
	}
	return nil
}
