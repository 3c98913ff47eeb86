-- Ends requests, or says that they still run. KEYS as in limits.lua.
-- ARGV: member, "renew" and the lease in ms; or member, "release", the second of its admission, 1 where the request
-- itself is taken back, then for each scope by how much the tokens reserved there differ from those used.
local member, verb = ARGV[1], ARGV[2]
if verb == 'renew' then
  local time, lease = redis.call('TIME'), tonumber(ARGV[3])
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  for _, key in ipairs(KEYS) do
    redis.call('ZADD', key, now + lease, member)
    redis.call('PEXPIRE', key, lease * 2)
  end
  return 1
end
local second, taken_back = ARGV[3], ARGV[4] == '1'
for scope = 0, #KEYS / 3 - 1 do
  local requests, spent, running = KEYS[scope * 3 + 1], KEYS[scope * 3 + 2], KEYS[scope * 3 + 3]
  redis.call('ZREM', running, member)
  local change = tonumber(ARGV[5 + scope])
  if change ~= 0 and redis.call('HEXISTS', spent, second) == 1 then
    redis.call('HINCRBY', spent, second, change)
  end
  if taken_back and redis.call('HEXISTS', requests, second) == 1 then
    redis.call('HINCRBY', requests, second, -1)
  end
end
return 1
