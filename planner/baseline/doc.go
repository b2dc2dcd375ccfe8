// Package baseline holds the policies that weir is compared with, behind the planner's
// and the router's own interfaces, so that a comparison changes the policy and nothing
// else.
//
// Read dynamo.go first (the actor and its two loops), then clamp.go (what a full budget
// does to its wishes) and router.go (where it sends a turn). static.go is a split that
// never changes.
//
// The dynamo-like policies are re-implementations of published rules, as read at
// wxsms/dynamo commit 2a6da14c83617f5412caba5777dbf0e2399e9c5f of 2026-08-21 (Apache-2.0,
// a synchronized fork of ai-dynamo/dynamo, version 1.5.0-dev). No code was copied, paths
// in comments are relative to that commit. A comparison says "dynamo-like policy (as of
// 2a6da14c)": how that system itself would do is not measured here.
//
// What is not repeated, and whom that favours: its workers bind a request at arrival
// and abort those of a removed worker, here the router places them again (kinder); its
// default predictor is an automatic ARIMA, here stand the random walk that this fits to
// few points, and its Kalman filter (predict.go).
package baseline
