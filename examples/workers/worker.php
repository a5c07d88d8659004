<?php
// A Redrive worker: leases `greet` jobs, runs them, and reports what came of each.
declare(strict_types=1);

/** Posts JSON, and gives the status and the data; status 0 if nobody answers. */
function post(string $path, array $body): array
{
    $token = getenv('REDRIVE_TOKEN');
    $headers = ['Content-Type: application/json', ...($token ? ["Authorization: Bearer $token"] : [])];
    $http = ['method' => 'POST', 'header' => $headers, 'content' => json_encode((object) $body)];
    $context = stream_context_create(['http' => $http + ['ignore_errors' => true, 'timeout' => 40]]);
    $server = getenv('REDRIVE_URL') ?: 'http://127.0.0.1:7373';
    $text = @file_get_contents("$server/api/v1$path", false, $context);
    $status = $text === false ? 0 : (int) explode(' ', $http_response_header[0])[1];
    return [$status, json_decode((string) $text, true)['data'] ?? []];
}

/** What the job is for. What it returns is kept as the job's output. */
function handle(array $job): array
{
    $name = $job['payload']['name'] ?? throw new InvalidArgumentException('there is no name');
    return ['greeting' => "Hello, $name"];
}

for ($me = [];;) {
    [$status, $leased] = post('/workers/lease', $me + ['kinds' => ['greet'], 'wait' => '20s', 'leaseFor' => '1m']);
    if ($status !== 200) {
        // Nobody answered, or we were away for too long: begin again as a new worker.
        $me = [];
        sleep(1);
        continue;
    }
    $me = ['workerId' => $leased['workerId']];
    foreach ($leased['jobs'] as $job) {
        try {
            [$report, $body] = ['complete', ['output' => handle($job)]];
        } catch (InvalidArgumentException $error) {
            [$report, $body] = ['fail', ['class' => 'permanent', 'message' => $error->getMessage()]];
        } catch (Throwable $error) {
            [$report, $body] = ['fail', ['message' => $error->getMessage()]];
        }
        // 409 means that the job is no longer ours. Without an answer the same report is sent again: it counts once.
        while (!in_array(post("/leases/{$job['lease']}/$report", $body)[0], [200, 409])) {
            sleep(1);
        }
    }
}
