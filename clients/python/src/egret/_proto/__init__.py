"""Generated from `proto/egret/queue/v1/queue.proto` by `clients/generate`; private."""
