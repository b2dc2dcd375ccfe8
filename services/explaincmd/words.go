package explaincmd

import (
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
)

// causeWords says what a cause means.
func causeWords(c schemas.MissCause) string {
	switch c {
	case schemas.MissFirst:
		return "the branch had no context yet"
	case schemas.MissNewText:
		return "every whole block that was known was found; what follows is new, or less than a block"
	case schemas.MissSystem:
		return "the system message changed"
	case schemas.MissTools:
		return "the tool definitions changed"
	case schemas.MissTemplate:
		return "the chat template or its options changed"
	case schemas.MissModel:
		return "the session's context was computed by another model or adapter"
	case schemas.MissCompaction:
		return "a summary replaced earlier messages"
	case schemas.MissRewrite:
		return "an earlier message changed"
	case schemas.MissPruned:
		return "an image or a tool result was taken out of an earlier message"
	case schemas.MissReasoning:
		return "the template does not repeat the reasoning of an earlier answer"
	case schemas.MissReworded:
		return "the template writes an earlier answer otherwise than it was generated"
	case schemas.MissEvicted:
		return "it had been computed and kept, and was evicted"
	case schemas.MissNotKept:
		return "it had been computed, and memory had no room to keep it"
	case schemas.MissNotCached:
		return "images in the prompt are not fully described, so nothing of it is kept"
	}
	return "a cause that this version does not know"
}

// ruleWords says by which rule a block went.
func ruleWords(rule string) string {
	switch rule {
	case hostmem.RuleLRU:
		return "room was needed, and nothing else had gone unused for longer"
	case hostmem.RuleDead:
		return "room was needed, and its context had been replaced or its branch had ended"
	case hostmem.RuleIdle:
		return "room was needed, no live branch held it, and of such blocks nothing had gone unused for longer"
	case hostmem.RuleWaiting:
		return "room was needed, nothing was left that no branch waits with, and its branch was expected back last"
	case hostmem.RuleDisk:
		return "it lies on disk, and was not read in time"
	case hostmem.RuleCleared:
		return "the memory was cleared"
	case hostmem.RuleChecksum:
		return "its bytes did not match their checksum"
	case hostmem.RuleWriter:
		return "its executor died while it stored it"
	case hostmem.RulePool:
		return "its model was not served any more and another one needed the memory"
	case hostmem.RuleErased:
		return "a session was deleted"
	case hostmem.RuleForgotten:
		return "longer ago than the tier remembers, or before it started"
	}
	return "the tier does not say why"
}
