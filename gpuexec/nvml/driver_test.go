//go:build cgo && linux && nvml

package nvml

import (
	"errors"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/weir-dev/weir/schemas"
)

// host is go-nvml's mock of an eight-GPU server with the readings that it lacks. It
// shows that readings are mapped and errors handled, not what a real driver says.
type host struct {
	*server.Server
	events []nvml.EventData
	lost   int // index of a device that is lost; -1 for none
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{Server: dgxh200.New(), lost: -1}
	set := &mock.EventSet{
		WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
			if len(h.events) == 0 {
				return nvml.EventData{}, nvml.ERROR_TIMEOUT
			}
			e := h.events[0]
			h.events = h.events[1:]
			return e, nvml.SUCCESS
		},
		FreeFunc: func() nvml.Return { return nvml.SUCCESS },
	}
	h.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return set, nvml.SUCCESS }
	h.ErrorStringFunc = func(r nvml.Return) string { return r.Error() }
	for i, d := range h.Devices {
		dev := d.(*server.Device)
		uuid := dev.UUID
		dev.GetUUIDFunc = func() (string, nvml.Return) {
			if h.lost == i {
				return "", nvml.ERROR_GPU_IS_LOST
			}
			return uuid, nvml.SUCCESS
		}
		dev.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return nvml.EventTypeXidCriticalError, nvml.SUCCESS }
		dev.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
		dev.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: uint32(10 * i)}, nvml.SUCCESS }
		dev.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 612_500, nvml.SUCCESS }
		dev.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 71, nvml.SUCCESS }
		dev.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) {
			return nvml.ClocksEventReasonGpuIdle | nvml.ClocksEventReasonSwPowerCap, nvml.SUCCESS
		}
		dev.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
	}
	return h
}

func xid(h *host, i int, code uint64) {
	h.events = append(h.events, nvml.EventData{Device: h.Devices[i], EventType: nvml.EventTypeXidCriticalError, EventData: code})
}

func find(gpus []schemas.GPU, i int, h *host) *schemas.GPU {
	id := h.Devices[i].(*server.Device).UUID
	at := slices.IndexFunc(gpus, func(g schemas.GPU) bool { return g.UUID == id })
	if at < 0 {
		return nil
	}
	return &gpus[at]
}

func TestRead(t *testing.T) {
	h := newHost(t)
	d, err := open(h)
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := d.Read()
	if err != nil || len(gpus) != 8 {
		t.Fatalf("%d devices, %v", len(gpus), err)
	}
	g := find(gpus, 3, h)
	if g.Util != 0.3 || g.PowerW != 612.5 || g.TempC != 71 || g.MemTotal < 100<<30 || g.Name == "" || g.ECC != 0 || !slices.Equal(g.Slowed, []string{"power_cap"}) {
		t.Errorf("%+v", g)
	}
	// The gravest of several errors is told, once.
	xid(h, 3, 31)
	xid(h, 3, 79)
	xid(h, 3, 45)
	xid(h, 5, 94)
	if gpus, _ = d.Read(); find(gpus, 3, h).XID != 79 || find(gpus, 5, h).XID != 94 || find(gpus, 0, h).XID != 0 {
		t.Errorf("%+v", gpus)
	}
	if gpus, _ = d.Read(); find(gpus, 3, h).XID != 0 {
		t.Errorf("told twice: %+v", gpus)
	}
	h.lost = 3
	if gpus, err = d.Read(); err != nil || len(gpus) != 7 || find(gpus, 3, h) != nil {
		t.Errorf("%d devices, %v", len(gpus), err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestNoDriver(t *testing.T) {
	for ret, want := range map[nvml.Return]bool{nvml.ERROR_LIBRARY_NOT_FOUND: true, nvml.ERROR_DRIVER_NOT_LOADED: true, nvml.ERROR_UNKNOWN: false} {
		lib := &mock.Interface{
			InitFunc:        func() nvml.Return { return ret },
			ErrorStringFunc: func(r nvml.Return) string { return r.Error() },
		}
		if _, err := open(lib); err == nil || errors.Is(err, ErrNoDriver) != want {
			t.Errorf("%v: %v", ret, err)
		}
	}
	// This machine: a driver, or the error that says that there is none.
	if d, err := Open(); err != nil && !errors.Is(err, ErrNoDriver) {
		t.Error(err)
	} else if err == nil {
		_ = d.Close()
	}
}
