// What nginx asks about one request to a vLLM service: where it goes, whether its answer may be
// kept, and under which key. Everything is judged here, from two flag files and the request alone,
// so that it also ends on time when the daemon is dead.
//
// A server sets $vllm_watchdog_front (the prefix of its variables), $vllm_watchdog_flags (path of
// its flags without their endings) and $vllm_watchdog_tenants (names of headers).

import crypto from 'crypto';
import fs from 'fs';

const LIMIT = 600; // seconds from the flag's mtime, whatever the flag itself says
const MOST = 90; // percent of the new requests that may be refused
const AHEAD = 5; // seconds that a flag may seem to be of the future: the clock was set back
const WORK = ['/v1/completions', '/v1/chat/completions'];

function number(text, name, otherwise, most) {
    const found = text.match(new RegExp('^' + name + '=([0-9]{1,6})$', 'm'));
    return found ? Math.min(Number(found[1]), most) : Math.min(otherwise, most);
}

// What a flag says while it counts, else null. One that cannot be read counts as an empty one.
function flag(path) {
    let status, text = '';
    try {
        status = fs.statSync(path);
    } catch (e) {
        return null;
    }
    try {
        text = status.size < 4096 ? fs.readFileSync(path, 'utf8') : '';
    } catch (e) {
        text = '';
    }
    const age = (Date.now() - status.mtimeMs) / 1000;
    if (age < -AHEAD || age >= number(text, 'seconds', LIMIT, LIMIT)) {
        return null;
    }
    return { percent: number(text, 'percent', 25, MOST) };
}

// The upstream that a new request goes to. Where that cannot be judged: the server, as always.
function backend(r) {
    const front = r.variables.vllm_watchdog_front;
    try {
        return judged(r, front, r.variables.vllm_watchdog_flags);
    } catch (e) {
        return front + '_serving';
    }
}

function judged(r, front, flags) {
    if (flag(flags + '.cache-only')) {
        return front + '_cache_only';
    }
    if (r.method === 'POST') {
        const shed = flag(flags + '.shed');
        if (shed && Math.random() * 100 < shed.percent) {
            return front + '_shed';
        }
    }
    return front + '_serving';
}

// An answer may be kept that would come out the same again: temperature 0, one answer, in one
// piece. Whatever is said in another form than the plain one is not kept.
function repeatable(r) {
    if (r.method === 'GET') {
        return r.variables.request_uri === '/v1/models';
    }
    // Without a body there is nothing to tell two requests apart (or it went to a file).
    const body = r.variables.request_body;
    if (r.method !== 'POST' || WORK.indexOf(r.uri) < 0 || !body) {
        return false;
    }
    let asked;
    try {
        asked = JSON.parse(body);
    } catch (e) {
        return false;
    }
    return asked !== null && typeof asked === 'object' && !Array.isArray(asked)
        && asked.temperature === 0
        && plain(asked.stream, false)
        && plain(asked.n, 1)
        && plain(asked.best_of, 1)
        && plain(asked.use_beam_search, false);
}

function plain(value, standard) {
    return value === undefined || value === null || value === standard;
}

// "1": the answer is not kept.
function unkept(r) {
    try {
        return repeatable(r) ? '' : '1';
    } catch (e) {
        return '1';
    }
}

// "1": the cache is not asked. It answers in cache-only mode, and in no other.
function unread(r) {
    const front = r.variables.vllm_watchdog_front;
    const only = r.variables[front + '_backend'] === front + '_cache_only';
    return only && r.variables[front + '_unkept'] === '' ? '' : '1';
}

// The key: a digest of who asks, what, and the whole body with its model, to the byte.
function key(r) {
    const front = r.variables.vllm_watchdog_front;
    if (r.variables[front + '_unkept'] !== '') {
        return 'unkept ' + r.variables.request_id;
    }
    const tenants = r.variables.vllm_watchdog_tenants.toLowerCase().split(' ');
    const who = r.rawHeadersIn
        .map((header) => [header[0].toLowerCase(), header[1]])
        .filter((header) => tenants.indexOf(header[0]) >= 0);
    const hash = crypto.createHash('sha256');
    hash.update(JSON.stringify([r.method, r.variables.request_uri, who]) + '\n');
    if (r.method === 'POST') {
        hash.update(r.rawVariables.request_body);
    }
    return hash.digest('hex');
}

export default { backend, unkept, unread, key };
