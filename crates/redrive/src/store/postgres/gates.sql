SELECT g.name, g.version, g.active, g.state, g.next_us, g.retry_us, g.sent
FROM redrive.gates AS g WHERE g.version > $1 OR g.name = ANY ($2)
