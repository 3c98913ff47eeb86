-- Counts one request in up to two scopes, or in none. The same rules as domain/windows.py.
-- KEYS: for each scope its requests (hash second -> count), tokens (hash), running (sorted set member -> lapse in ms).
-- ARGV: member, tokens, window in s, lease in ms, wait in ms where only an end makes room; then for each scope its
-- limits of requests, tokens and requests at once, "" for none.
-- Answers {1, second, requests left, tokens left} (-1: no such limit) or {0, scope, limit 1..3, limit, wait in ms}.
local time = redis.call('TIME')
local second = tonumber(time[1])
local now = second * 1000 + math.floor(tonumber(time[2]) / 1000)
local member, tokens = ARGV[1], tonumber(ARGV[2])
local window, lease, no_room = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local left = {-1, -1}

local function rate(key, most, need)
  local flat, steps, counts, total = redis.call('HGETALL', key), {}, {}, 0
  for index = 1, #flat, 2 do
    local at = tonumber(flat[index])
    if at < second - window then
      redis.call('HDEL', key, flat[index])
    else
      local count = tonumber(flat[index + 1])
      steps[#steps + 1] = at
      counts[at] = count
      total = total + count
    end
  end
  local over = total + need - most
  if over <= 0 then return 0, most - total - need end
  table.sort(steps)
  for _, at in ipairs(steps) do
    over = over - counts[at]
    if over <= 0 then return (at + window + 1) * 1000 - now, 0 end
  end
  return (window + 1) * 1000, 0
end

local function reserved(most)
  return math.min(tokens, most)
end

local scopes = #KEYS / 3
for scope = 0, scopes - 1 do
  for kind = 1, 2 do
    local most = tonumber(ARGV[5 + scope * 3 + kind])
    if most then
      local need = kind == 1 and 1 or reserved(most)
      local wait, rest = rate(KEYS[scope * 3 + kind], most, need)
      if wait > 0 then return {0, scope, kind, most, wait} end
      if left[kind] < 0 or rest < left[kind] then left[kind] = rest end
    end
  end
  local most = tonumber(ARGV[5 + scope * 3 + 3])
  if most then
    local key = KEYS[scope * 3 + 3]
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    if redis.call('ZCARD', key) >= most then return {0, scope, 3, most, no_room} end
  end
end

for scope = 0, scopes - 1 do
  local requests, spent, running = KEYS[scope * 3 + 1], KEYS[scope * 3 + 2], KEYS[scope * 3 + 3]
  if tonumber(ARGV[6 + scope * 3]) then
    redis.call('HINCRBY', requests, second, 1)
    redis.call('EXPIRE', requests, window * 2)
  end
  local most = tonumber(ARGV[7 + scope * 3])
  if most then
    redis.call('HINCRBY', spent, second, reserved(most))
    redis.call('EXPIRE', spent, window * 2)
  end
  if tonumber(ARGV[8 + scope * 3]) then
    redis.call('ZADD', running, now + lease, member)
    redis.call('PEXPIRE', running, lease * 2)
  end
end
return {1, second, left[1], left[2]}
