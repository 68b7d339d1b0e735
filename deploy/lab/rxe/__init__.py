"""deploy/peer-rxe: measures Linux's Soft-RoCE in user-mode Linux, at native speed."""
