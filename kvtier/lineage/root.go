package lineage

import (
	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

// Root is the root of a turn's block keys on engines of that format.
func Root(k schemas.KeySpec, f schemas.KVFormat) (kvtier.Key, error) {
	s := kvtier.Spec{
		TenantSalt: k.Salt, ModelDigest: k.Model, Adapter: k.Adapter, Template: k.Template, Tokenizer: k.Vocab,
		Engine: f.Engine, EngineVersion: f.Version, Numerics: f.Numerics, FormatVersion: f.Layout,
	}
	if err := s.Validate(); err != nil {
		return kvtier.Key{}, err
	}
	return s.Root(), nil
}

// root is the root of block keys of that kind, when an executor of their model has
// been heard.
func (l *Lineage) root(k schemas.KeySpec) (kvtier.Key, bool) {
	if r, ok := l.roots[k]; ok {
		return r, true
	}
	for i := range l.cfg.Models {
		m := &l.cfg.Models[i]
		if m.Digest != k.Model || m.Vocab != k.Vocab {
			continue
		}
		f, ok := l.format[m.Name]
		if !ok {
			continue
		}
		r, err := Root(k, f)
		if err != nil {
			continue
		}
		if len(l.roots) >= maxRoots {
			clear(l.roots)
		}
		l.roots[k] = r
		return r, true
	}
	return kvtier.Key{}, false
}

// maxRoots bounds the roots that are kept: one per tenant, model and set of
// template options.
const maxRoots = 4096
