<?php // A Redrive worker: leases `greet` jobs, runs them, and reports what came of each.

function post(string $path, array $body): array // the status and the data; status 0 if nobody answers
{
    $url = (getenv('REDRIVE_URL') ?: 'http://127.0.0.1:7373') . "/api/v1$path";
    $headers = ['Content-Type: application/json', 'Authorization: Bearer ' . getenv('REDRIVE_TOKEN')];
    $http = ['method' => 'POST', 'header' => $headers, 'content' => json_encode($body), 'ignore_errors' => true];
    $text = @file_get_contents($url, false, stream_context_create(['http' => $http + ['timeout' => 40]]));
    $status = $text === false ? 0 : (int) explode(' ', $http_response_header[0])[1];
    return [$status, json_decode((string) $text, true)['data'] ?? []];
}

function handle(array $payload): array // what the job is for; what it returns is kept as the job's output
{
    return ['greeting' => 'Hello, ' . ($payload['name'] ?? throw new DomainException('there is no name'))];
}

for ($me = [];; $status === 200 || sleep(1)) {
    [$status, $leased] = post('/workers/lease', $me + ['kinds' => ['greet'], 'wait' => '20s', 'leaseFor' => '1m']);
    $me = $leased ? ['workerId' => $leased['workerId']] : []; // no answer: begin as a new worker
    foreach ($leased['jobs'] ?? [] as $job) {
        try {
            [$report, $body] = ['complete', ['output' => handle($job['payload'])]];
        } catch (Throwable $error) { // a payload that is wrong stays wrong
            $known = $error instanceof DomainException ? ['class' => 'permanent'] : [];
            [$report, $body] = ['fail', ['message' => $error->getMessage()] + $known];
        }
        while (!in_array(post("/leases/$job[lease]/$report", $body)[0], [200, 409])) sleep(1); // it counts once
    }
}
