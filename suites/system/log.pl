# What a log says of hosts, addresses, paths and users: regular expressions, hashes, sorting.
use strict;
use warnings;

my ($rounds, $path) = @ARGV;
my %result;
for my $round (1 .. $rounds) {
    my (%hosts, %paths, %users, %jobs, %queries);
    my ($bytes, $slow, $lines) = (0, 0, 0);
    open(my $log, '<', $path) or die "cannot read $path: $!";
    while (my $line = <$log>) {
        $lines++;
        my ($time, $host, $daemon, $text) =
            $line =~ /^(\S+) (web-\d+) (\w+)\[\d+\]: (.*)$/ or die "line $lines: $line";
        $hosts{$host}{$daemon}++;
        if ($text =~ m{^([\d.]+) "([A-Z]+) (/\S*?)\?(\w+)=(\d+) HTTP/1\.1" (\d+) (\d+) (\d+)ms$}) {
            $bytes += $7 if $6 == 200;
            $slow++ if $8 > 800;
            my @parts = split m{/}, substr($3, 1);
            $paths{join '/', map { ucfirst } reverse @parts} += $8;
        } elsif ($text =~ /^session opened for user (\w+) from ([\d.]+)$/) {
            $users{$1}{$2}++;
        } elsif ($text =~ /^job (\d+) (\w+)-(\w+) finished in (\d+) ms$/) {
            $jobs{lc "$3 $2"} += $4 + $1 % 7;
        } elsif (my ($columns, $table, $column, $value) =
            $text =~ /select (.+?) from (\w+) where (\w+) = (\d+)/) {
            $columns =~ s/, /|/g;
            $queries{"$table.$column"} .= length($columns) . substr($value, 0, 1);
        }
    }
    close $log;
    my @busiest = sort { $paths{$b} <=> $paths{$a} || $a cmp $b } keys %paths;
    my @longest = sort { length($queries{$b}) <=> length($queries{$a}) || $a cmp $b } keys %queries;
    my ($jobs_ms, $addresses) = (0, 0);
    $jobs_ms += $jobs{$_} for keys %jobs;
    $addresses += keys %{$users{$_}} for keys %users;
    my $access = 0;
    $access += $hosts{$_}{access} // 0 for sort keys %hosts;
    $result{"lines $lines access $access bytes $bytes slow $slow\n"
            . "paths " . @busiest . " busiest $busiest[0] $paths{$busiest[0]}\n"
            . "jobs " . keys(%jobs) . " ms $jobs_ms users " . keys(%users)
            . " addresses $addresses\n"
            . "queries " . @longest . " longest $longest[0]\n"}++;
}
print "rounds $result{$_}\n$_" for sort keys %result;
