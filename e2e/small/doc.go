// Package small asks stacks whose KV memory is far too small for what they are asked, with
// admission by memory: each turn ends with an answer or a reason, in bounded time.
package small
